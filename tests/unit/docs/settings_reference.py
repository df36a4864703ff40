"""Writes docs/reference/settings.md from the settings' own definitions: `python -m tests.unit.docs.settings_reference`.

Meanings are the comments of the fields; what is valid is found out by asking the checks themselves.
"""
import dataclasses
import inspect
import re
import types
import typing
from pathlib import Path

from angarium.core.errors import ConfigError
from angarium.node.acquirable import ACQUIRABLE
from angarium.node.cluster.settings import ClusterSettings
from angarium.node.config import NodeConfig, checked_value, with_values

PAGE = Path(__file__).parents[3] / "docs/reference/settings.md"
_HEAD = """# Settings of a node

Each has a table and a key: `[session]` and `links_max` in a file, `ANGARIUM_SESSION__LINKS_MAX` in the environment. The
file counts least, then the environment, then options of the command line; on top of them is what was changed while the
node ran. `angarium config check FILE` names all mistakes of a file, `angarium config show FILE` what a node would start
with, `angarium config get --all` what running nodes have. `angarium config set KEY VALUE` changes those of which the
column *changed online* says what the change counts for; the others are read at the start. Bytes and seconds are in the
names: `_bytes`, `_s`. Numbers are finite. Unknown keys are errors.
"""
_COLUMNS = "| key | type | default | valid | changed online | |\n|---|---|---|---|---|---|\n"
_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text", types.NoneType: "not set"}
_FIELD = re.compile(r"    (\w+): [^=]+ = ")
_CLUSTER = ClusterSettings(name="c", secret="0123456789abcdef", voters=("a=h:1",), groups=("a: a",))
_PROBES: dict[object, tuple[object, ...]] = {
    int: (0, 1, 1 << 62), float: (0.0, 1e-9), str: ("", ":"), tuple[str, ...]: (["", ""], ["a=h:1", "b=h:2"]),
}  # fmt: skip


def page() -> str:
    parts = [_HEAD]
    for section in dataclasses.fields(NodeConfig):
        assert isinstance(section.default_factory, type)
        settings = section.default_factory
        hints, meanings = typing.get_type_hints(settings), meanings_of(settings)
        parts.append(f"\n## [{section.name}]\n\n{_COLUMNS}")
        for field in dataclasses.fields(settings):
            key, hint = f"{section.name}.{field.name}", hints[field.name]
            cells = (
                f"`{field.name}`", _type(hint), _default(field.name, field.default), _valid(key, hint),
                ACQUIRABLE.get(key, ""), meanings[field.name],
            )  # fmt: skip
            parts.append("| " + " | ".join(cells).replace("  ", " ") + " |\n")
    return "".join(parts)


def meanings_of(settings: type) -> dict[str, str]:
    """The comment before each field; one that has none shares that of the field before."""
    found: dict[str, str] = {}
    comment: list[str] = []
    meaning = ""
    for line in inspect.getsource(settings).splitlines():
        if line.startswith("    # "):
            comment.append(line.removeprefix("    # "))
        elif (field := _FIELD.match(line)) is not None:
            meaning = " ".join(comment) or meaning
            assert meaning, f"{settings.__name__}.{field[1]} has no comment"
            found[field[1]] = meaning
            comment = []
        elif line.startswith("    def "):
            break
    return found


def _kinds(hint: typing.Any) -> tuple[typing.Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _type(hint: typing.Any) -> str:
    if hint == tuple[str, ...]:
        return "list of texts"
    return " or ".join(_TYPES[kind] for kind in _kinds(hint))


def _default(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or value in ("", ()):
        return "chosen" if value is None else "empty"
    if isinstance(value, int) and value and "bytes" in name:
        for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"`{value}`, {value // size} {unit}"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _valid(key: str, hint: typing.Any) -> str:
    """What those values are told that are refused; a number that is not is positive, or may be zero."""
    told: list[str] = []
    if not any(kind in _PROBES for kind in _kinds(hint)):
        return ""
    kind = next(kind for kind in _kinds(hint) if kind in _PROBES)
    for probe in _PROBES[kind]:
        if (refusal := _refusal(key, probe)) and refusal not in told:
            told.append(refusal)
    if kind not in (int, float):
        return "; ".join(told)
    bounds = [each for each in told if each != "more than 0"]
    return "; ".join(bounds) or ("more than 0" if told else "0 or more")


def _refusal(key: str, probe: object) -> str:
    try:
        with_values(NodeConfig(cluster=_CLUSTER), {key: checked_value(key, probe)})
    except ConfigError as error:
        told = str(error).replace("it has to be positive", "more than 0")
        for word in ("GROUP", "BUS"):  # the colon is part of what is to be written
            told = told.replace(f"{word}: ", f"{word}:\0")
        return told.rpartition(": ")[2].replace("\0", " ").removeprefix("use ")
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
