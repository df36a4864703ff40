"""Work in portions: a large selector is read and made while others have their turns.

What may take long is a generator that yields when as much is done as one turn may take, and returns what it made.
`finished` does all of it at once, for whoever has nobody waiting.

    parsing ──> Selector ──> making ──> CompiledSelector
"""
from collections.abc import Generator
from typing import TypeVar

PORTION = 1_000  # tokens, nodes or functions: two to five milliseconds

Made = TypeVar("Made")
Portions = Generator[None, None, Made]


class Pace:
    """Counts what is done, through all levels of what is built."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PORTION

    def is_due(self) -> bool:
        """One more is done; whether that is enough for now."""
        self._left -= 1
        if self._left:
            return False
        self._left = PORTION
        return True


def finished(portions: Portions[Made]) -> Made:
    while True:
        try:
            next(portions)
        except StopIteration as end:
            made: Made = end.value
            return made
