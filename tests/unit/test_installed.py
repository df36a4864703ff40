"""Goal: whoever installs Angarium and checks his types is told where he misuses it. Method: a wheel as it would be
published, and a type checker on a program, outside of this tree, that uses what is installed here."""
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import angarium


async def main() -> None:
    async with angarium.connect("angarium://localhost") as connection, connection.session() as session:
        await session.send("orders", b"one", priority=9)
        await session.send("orders", b"two", priority="high")
"""


def _run(*module: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *module], cwd=where, capture_output=True, text=True, timeout=120)


def test_the_wheel_says_that_it_has_types_and_has_every_module(tmp_path: Path) -> None:
    built = _run("hatchling", "build", "-t", "wheel", "-d", str(tmp_path), where=_ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    assert {"angarium/py.typed", "pyspark_angarium/py.typed"} <= names
    source = _ROOT / "src"
    assert {str(path.relative_to(source)) for path in source.rglob("*.py")} <= names


def test_a_type_checker_finds_what_is_misused_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    checked = _run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py", where=tmp_path)
    assert [line for line in checked.stdout.splitlines() if "error" in line or "note" in line] == [
        'program.py:8: error: Argument "priority" to "send" of "Sends" has incompatible type "str"; expected "int"  '
        "[arg-type]",
        "Found 1 error in 1 file (checked 1 source file)",
    ], checked.stderr
