"""Patterns over names of destinations: globs and regular expressions, matched in time linear in the name.

| in a glob | stands for |
|---|---|
| `*` | any characters of one segment: `orders.*` is `orders.eu` and not `orders.eu.west` |
| `?` | one character of a segment |
| `**` | as a whole segment, any number of segments, none as well: `orders.**` is `orders`, `orders.eu`, `orders.a.b` |

A regular expression has RE2's syntax and has to match the whole name. Both are run by RE2, which never backtracks; what
it is given is bounded (`PATTERN_CHARACTERS_MAX`, `PROGRAM_SIZE_MAX`), and `cost` tells how much work one name is. A
name that begins with an underscore is matched only by a pattern that begins with one.
"""
import re

import re2

from angarium.core.errors import Rejected
from angarium.core.wire.frames import PatternSyntax

PATTERN_CHARACTERS_MAX = 1_000
PROGRAM_SIZE_MAX = 1_000  # instructions: some 3 ms for the longest name in the worst case, and 1 to 10 us as a rule
_MEMORY_BYTES_MAX = 1 << 18
_GLOB = re.compile(r"[A-Za-z0-9_*?-]+(?:\.[A-Za-z0-9_*?-]+)*")
_WILD = re.compile(r"[*?]")


def is_glob(text: str) -> bool:
    """It has a wildcard: no name has."""
    return _WILD.search(text) is not None


class NamePattern:
    def __init__(self, text: str, syntax: PatternSyntax) -> None:
        """Raises Rejected `bad-pattern` with what is wrong."""
        if not 0 < len(text) <= PATTERN_CHARACTERS_MAX:
            raise Rejected("bad-pattern", f"pattern of {len(text):,} characters: 1 to {PATTERN_CHARACTERS_MAX:,}")
        self.text = text
        self.prefix = _WILD.split(text)[0].removesuffix(".") if syntax == PatternSyntax.GLOB else ""
        self._end = "." if syntax == PatternSyntax.GLOB else ""  # a glob is made of segments with the dot behind them
        source = _translated(text) if syntax == PatternSyntax.GLOB else text
        try:
            self._compiled = re2.compile(source, _options())
        except re2.error as error:
            what = error.args[0] if error.args else ""
            reason = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
            raise Rejected("bad-pattern", f"pattern {text!r}: {reason}") from None
        self.cost: int = self._compiled.programsize
        if self.cost > PROGRAM_SIZE_MAX:
            reason = f"pattern {text[:100]!r} is a program of {self.cost:,} steps: the most is {PROGRAM_SIZE_MAX:,}"
            raise Rejected("bad-pattern", f"{reason}; use fewer or smaller repetitions")

    def matches(self, name: str) -> bool:
        if not name.startswith(self.prefix) or name.startswith("_") != self.text.startswith("_"):
            return False
        return self._compiled.fullmatch(name + self._end) is not None


def _options() -> "re2.Options":
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    return options


def _translated(glob: str) -> str:
    if not _GLOB.fullmatch(glob):
        reason = f"glob {glob!r}: use letters, digits, '-', '_', '*' and '?' in segments separated by single dots"
        raise Rejected("bad-pattern", reason)
    found = ""
    for segment in glob.split("."):  # each with the dot behind it
        if segment == "**":
            found += r"(?:[^.]+\.)*"
        elif "**" in segment:
            raise Rejected("bad-pattern", f"glob {glob!r}: '**' stands for whole segments, not for a part of one")
        else:
            found += segment.replace("*", "[^.]*").replace("?", "[^.]") + r"\."
    return found
