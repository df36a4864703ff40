"""LIKE patterns (3.8.1.1), matched without backtracking.

A pattern is cut at its %, which gives segments. The first must begin the string, the last must end it; those between
are looked for from left to right, each as early as possible: an earlier place never leaves less for the rest. A
segment is found by its longest piece without _: `str.find` and one attempt for each place where it hits. When
attempts fail again and again, all places are tried at once instead, as bits of an int. The worst case is the product
of the lengths over the width of a machine word; there is no exponential one. Only patterns with % and _ have it: those
of one selector have at most `HARD_CHARACTERS_MAX` characters together, so that a string of a megabyte takes tenths of a
second at the very worst.

`_` is one Unicode character. (A Java string would count one outside the basic plane as two.)
"""
from dataclasses import dataclass

Symbol = str | None  # a character that stands for itself, or None for _
Piece = tuple[int, str]  # offset within its segment
HARD_CHARACTERS_MAX = 4_096
_ATTEMPTS_MAX = 32
_WINDOW_CHARACTERS = 4_096


def check_pattern(pattern: str, escape: str | None) -> tuple[str, int] | None:
    """What is wrong with a pattern, and at which of its characters. As in SQL 92, an escape must escape something."""
    at = 0
    while escape is not None and at < len(pattern):
        if pattern[at] != escape:
            at += 1
            continue
        if at + 1 == len(pattern):
            return "the escape character ends the pattern and escapes nothing", at
        if pattern[at + 1] not in ("%", "_", escape):
            return f"the escape character can only stand before %, _ and itself, not before {pattern[at + 1]!r}", at
        at += 2
    return None


def hard_characters(pattern: str) -> int:
    """How many characters of the pattern may have to be looked for everywhere; 0: it is simple."""
    return len(pattern) if "%" in pattern and "_" in pattern else 0


@dataclass(frozen=True, slots=True)
class Segment:
    length: int
    pieces: tuple[Piece, ...]  # without the longest
    longest: Piece

    def fits(self, text: str, at: int) -> bool:
        if not text.startswith(self.longest[1], at + self.longest[0]):
            return False
        return all(text.startswith(piece, at + offset) for offset, piece in self.pieces)

    def find(self, text: str, low: int, high: int) -> int:
        """The first place in text[low:high] where the segment fits, or -1."""
        if high - low < self.length:
            return -1
        offset, piece = self.longest
        end = high - self.length + offset + len(piece)
        for _ in range(_ATTEMPTS_MAX):
            at = text.find(piece, low + offset, end)
            if at < 0:
                return -1
            low = at - offset
            if all(text.startswith(other, low + where) for where, other in self.pieces):
                return low
            low += 1
        return self._find_by_bits(text, low, high)

    def _find_by_bits(self, text: str, low: int, high: int) -> int:
        """Window by window, so that what is spent follows how far the place is."""
        offsets: dict[str, list[int]] = {}
        for where, piece in (self.longest, *self.pieces):
            for at, character in enumerate(piece, where):
                offsets.setdefault(character, []).append(at)
        step = max(_WINDOW_CHARACTERS, 4 * self.length)
        for start in range(low, high - self.length + 1, step):
            window = text[start : min(high, start + step + self.length - 1)]
            fitting = (1 << (len(window) - self.length + 1)) - 1
            positions: dict[str, list[int]] = {character: [] for character in offsets}
            for at, character in enumerate(window):
                if character in positions:
                    positions[character].append(at)
            for character, wheres in offsets.items():
                there = _bits(positions[character], len(window))
                for where in wheres:
                    fitting &= there >> where
            if fitting:
                return start + (fitting & -fitting).bit_length() - 1
        return -1


def _bits(positions: list[int], length: int) -> int:
    octets = bytearray(length // 8 + 1)
    for at in positions:
        octets[at >> 3] |= 1 << (at & 7)
    return int.from_bytes(octets, "little")


class Pattern:
    """A checked pattern, ready to match. `prefix` is what every match begins with."""

    __slots__ = ("_first", "_last", "_length", "_middle", "only_prefix", "prefix", "whole")

    def __init__(self, pattern: str, escape: str | None) -> None:
        groups = _groups(pattern, escape)
        segments = [_segment(group) for group in groups]
        leading = groups[0]
        literal = leading[: leading.index(None)] if None in leading else leading
        self.prefix = "".join(symbol for symbol in literal if symbol is not None)
        simple = len(literal) == len(leading)
        self.whole = simple and len(groups) == 1  # nothing but itself matches
        self.only_prefix = simple and len(groups) > 1 and not any(groups[1:])  # whatever begins so matches
        self._first = segments[0]
        self._last = segments[-1] if len(segments) > 1 else None
        self._middle = tuple(segment for segment in segments[1:-1] if segment.length)
        self._length = sum(segment.length for segment in segments)

    def matches(self, text: str) -> bool:
        if len(text) < self._length or not self._first.fits(text, 0):
            return False
        if self._last is None:
            return len(text) == self._length
        low, high = self._first.length, len(text) - self._last.length
        if not self._last.fits(text, high):
            return False
        for segment in self._middle:
            at = segment.find(text, low, high)
            if at < 0:
                return False
            low = at + segment.length
        return True


def _groups(pattern: str, escape: str | None) -> list[list[Symbol]]:
    groups: list[list[Symbol]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            groups[-1].append(next(characters))
        elif character == "%":
            groups.append([])
        else:
            groups[-1].append(None if character == "_" else character)
    return groups


def _segment(symbols: list[Symbol]) -> Segment:
    pieces: list[Piece] = []
    start = 0
    for at, symbol in enumerate([*symbols, None]):
        if symbol is None:
            if at > start:
                pieces.append((start, "".join(s for s in symbols[start:at] if s is not None)))
            start = at + 1
    longest = max(pieces, key=lambda piece: len(piece[1]), default=(0, ""))
    return Segment(len(symbols), tuple(piece for piece in pieces if piece is not longest), longest)
