"""What is wrong with what was typed, in our words: Typer has its own, and those of the library that reads values."""
import re
from pathlib import Path
from typing import Any

import typer

WHOLE_MAX = 1 << 62  # as a broker takes them for its limits: they can be added to, and still be sent
_SENTENCES = (
    (re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL), r"more was given than it takes: \1"),
    (re.compile(r"Missing \w+ '(.*?)'.*"), r"\1 is missing"),
    (re.compile(r"Option '(.*)' requires an argument"), r"\1 needs a value"),
    (re.compile(r"Option '(.*)' does not take a value"), r"\1 takes no value"),
    (re.compile(r"No such option: (\S+) \(Possible options: (.*)\)"), r"there is no option \1. Did you mean \2?"),
    (re.compile(r"No such option:? (-[^-].*)"), r"there is no option \1; write -- before a value that begins with -"),
    (re.compile(r"No such (command|option):? (.*)"), r"there is no \1 \2"),
)


def at_most_whole(value: int | None) -> int | None:
    """The callback of options that are whole numbers: what is longer no message could carry."""
    if value is not None and value > WHOLE_MAX:
        raise typer.BadParameter(f"{value:,} is too much: it can be at most {WHOLE_MAX:,}")
    return value


def above_zero(seconds: float | None) -> float | None:
    """The callback of a time that cannot be none."""
    if seconds is not None and seconds <= 0:
        raise typer.BadParameter(f"{seconds:g}: it has to be above 0")
    return seconds


def given_path(text: str | None) -> Path | None:
    """The callback of options that are paths, with `path_type=str`: an empty one would be where we are."""
    if text == "":
        raise typer.BadParameter("is empty: name a file or a directory")
    return None if text is None else Path(text)


def not_empty(text: str | None) -> str | None:
    """The callback of options that leave something out: an empty one is a variable that was never set."""
    if text is not None and not text.strip():
        raise typer.BadParameter("is empty: give it a value, or leave it out")
    return text


def sentence_of(error: typer.TyperException) -> str:
    """Without a full stop."""
    if isinstance(error, typer.BadParameter) and (wrong := _wrong_value(error)):
        option = _name(error)
        return f"{option} {wrong}" if option else wrong
    text = error.format_message().rstrip(".")
    for theirs, ours in _SENTENCES:
        if (found := theirs.fullmatch(text)) is not None:
            return found.expand(ours)
    return text


def _name(error: typer.BadParameter) -> str:
    """Of the option, as it is written; of an argument, as the help calls it."""
    parameter: Any = error.param
    if parameter is None:
        return ""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper())


def _wrong_value(error: typer.BadParameter) -> str:
    """What was typed, and what can be; empty if Typer says it well enough."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return error.message.rstrip(".") if type(error) is typer.BadParameter and error.param is not None else ""
    found = errors()[0]
    given, limits = repr(found.get("input")), found.get("ctx", {})
    match found["type"]:
        case "int_parsing" | "int_from_float":
            wanted = "use a whole number"
        case "int_parsing_size":
            return f"is a number of {len(str(found['input'])):,} digits: it can be at most {WHOLE_MAX:,}"
        case "float_parsing":
            wanted = "use a number"
        case "greater_than_equal":
            return f"{found['input']}: it has to be at least {_as_number(limits['ge'])}"
        case "less_than_equal":
            return f"{found['input']}: it can be at most {_as_number(limits['le'])}"
        case "value_error":
            _, _, choices = str(limits.get("error", "")).partition(" is not one of ")
            if not choices:
                return ""
            wanted = f"use one of {choices.rstrip('.').replace(chr(39), '')}"
        case _:
            return ""
    return f"{given}: {wanted}"


def _as_number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:,g}"
