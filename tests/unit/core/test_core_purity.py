"""Goal: no machine does I/O, has a clock or chance, or knows who drives it. Method: what the source of `core` imports
and calls, wherever in a file, against a list of what it may; whatever is new is a decision."""
import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_CORE = Path(__file__).parents[3] / "src/angarium/core"
_MODULES = {
    "array", "base64", "bisect", "collections", "dataclasses", "difflib", "enum", "functools", "hashlib", "heapq",
    "itertools", "math", "operator", "re", "struct", "typing", "unicodedata", "zlib",
    "cryptography", "isal", "msgspec", "numpy", "re2",
}  # fmt: skip
# What has a clock, or the process, beside what is wanted: there, and only that.
_NAMES = {
    "calendar.py": {"datetime.UTC", "datetime.datetime"},  # to show a time that it is given
    "wire/layout.py": {"sys"},  # the order of bytes
}
_CALLS = {"open", "print", "input", "breakpoint", "__import__"}
_OF_MODULES = {"datetime.now", "datetime.utcnow", "datetime.today", "AESGCM.generate_key", "numpy.random"}


def _found(path: str, source: str) -> Iterator[str]:
    """What it may not have."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module, names, level):
                assert module is not None and level == 0, "of ours, absolutely"
                imported = [f"{module}.{alias.name}" for alias in names]
            case ast.Call(ast.Name(name)) if name in _CALLS:
                yield f"{path}:{node.lineno}: {name}()"
                continue
            case ast.Attribute(ast.Name(whose), name) if f"{whose}.{name}" in _OF_MODULES:
                yield f"{path}:{node.lineno}: {whose}.{name}"
                continue
            case _:
                continue
        for name in imported:
            is_ours = f"{name}.".startswith("angarium.core.")
            if not is_ours and name.partition(".")[0] not in _MODULES and name not in _NAMES.get(path, ()):
                yield f"{path}:{node.lineno}: imports {name}"


def test_core_imports_and_calls_only_what_is_pure() -> None:
    found = [
        each
        for path in sorted(_CORE.rglob("*.py"))
        for each in _found(str(path.relative_to(_CORE)), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "import secrets", "from datetime import datetime", "import os.path", "from angarium.spark import rows",
        "import angarium.runtime.disk as disk", "def f():\n    from time import monotonic", "open('x')",
        "import numpy\nnumpy.random.rand()", "import angarium", "from angarium import Message", "import coremessages",
    ],
)  # fmt: skip
def test_what_is_not_pure_is_found(line: str) -> None:
    assert list(_found("groups/raft.py", line))
