"""Some thousands of indexed conditions, and which of them a message meets.

A condition (`Branch`) asks of each of several properties that its value lie in a set; it has a bit in the page. A
column holds what all conditions ask of one property. A message is asked once for each column's property; each column
answers with the bits that fail, and what failed nowhere is met:

    met = all bits & ~(failed in column 1 | failed in column 2 | …)

The cost is that of the columns, and of a few operations on ints of `BITS_MAX` bits; the number of conditions shows
little.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy

from angarium.core.selector.closures import tests_in
from angarium.core.selector.fields import Fields
from angarium.core.selector.line import Line
from angarium.core.selector.normal import All, Any, Goal
from angarium.core.selector.values import to_double
from angarium.core.selector.valueset import EVERYTHING, NOTHING, ValueSet, combined, indexed

BITS_MAX = 16_384  # of a page: memory of a page grows with its square, of an index with the number of its pages
BRANCHES_MAX = 16  # of one selector: a longer OR is evaluated instead
TESTS_MAX = 2_000  # the same: to find out what of it can be indexed would take longer than is gained
EDGES_MAX = 1_024  # of one property of one branch: longer ones (an IN with thousands of strings) are evaluated
COLUMN_EDGES_MAX = 2 * BITS_MAX  # of one property in a page, two for each branch: what more is asked of it is evaluated


@dataclass(frozen=True, slots=True)
class Branch:
    asked: dict[str, ValueSet]  # by property
    exact: bool  # False: who meets it may still not match


def branches(goal: Goal) -> list[Branch]:
    """Conditions of which a message meets one at least if the goal holds; none if it never does."""
    if tests_in(goal) > TESTS_MAX:
        return [Branch({}, exact=False)]
    if isinstance(goal, Any) and len(goal.items) <= BRANCHES_MAX and indexed(goal) is None:
        return [branch for item in goal.items for branch in _branch(item)]
    return _branch(goal)


def _branch(goal: Goal) -> list[Branch]:
    if isinstance(goal, Any) and not goal.items:
        return []
    exact = True
    asked: dict[str, list[ValueSet]] = {}
    for item in goal.items if isinstance(goal, All) else (goal,):
        part = indexed(item)
        if part is None:
            exact = False
            continue
        exact = exact and part.exact
        asked.setdefault(part.name, []).append(part.values)
    sets = {name: combined(values, len(values)) for name, values in asked.items()}
    if NOTHING in sets.values():
        return []
    kept = {name: values for name, values in sets.items() if values != EVERYTHING and values.edges <= EDGES_MAX}
    dropped = any(values.edges > EDGES_MAX for values in sets.values())
    return [Branch(kept, exact and not dropped)]


class _Column:
    __slots__ = ("_asking", "_false", "_nan", "_null", "_numbers", "_texts", "_true", "edges")

    def __init__(self) -> None:
        self.edges = 0
        self._asking = 0  # the bits that ask anything of this property; the others below are those content with …
        self._null = self._true = self._false = self._nan = 0
        self._numbers = Line[float]()
        self._texts = Line[str]()

    def toggle(self, values: ValueSet, bit: int) -> bool:
        """Add what a branch asks, or take it away again; True while anybody asks for anything."""
        self._asking ^= bit
        self.edges += values.edges if self._asking & bit else -values.edges
        if values.null:
            self._null ^= bit
        if values.true:
            self._true ^= bit
        if values.false:
            self._false ^= bit
        if values.nan:
            self._nan ^= bit
        self._numbers.toggle(values.numbers, bit)
        self._texts.toggle(values.texts, bit)
        return bool(self._asking)

    def fail(self, values: Iterable[object], failed: list[int]) -> None:
        """Add to each message's failed bits those that its value does not content."""
        asking, number_at, text_at = self._asking, self._numbers.at, self._texts.at
        for at, value in enumerate(values):
            kind = value.__class__
            if kind is str:
                content = text_at(value)  # type: ignore[arg-type]
            elif kind is int:
                content = number_at(to_double(value))  # type: ignore[arg-type]
            elif kind is float:
                content = number_at(value) if value == value else self._nan  # type: ignore[arg-type]
            elif kind is bool:
                content = self._true if value else self._false
            else:
                content = self._null
            failed[at] |= asking ^ content


class Page:
    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._used = 0  # one bit for each branch
        self._free: list[int] = []  # numbers below `_top` that are free again; the lowest is taken first
        self._top = 0
        # An edge that belongs to one branch holds the very object, so that its bits exist once.
        self._bits: list[int] = []

    def __len__(self) -> int:
        return self._top - len(self._free)

    def fitting(self, branch: Branch) -> Branch:
        """What of the branch there is room for."""
        asked = {
            name: values
            for name, values in branch.asked.items()
            if name not in self._columns or self._columns[name].edges + values.edges <= COLUMN_EDGES_MAX
        }
        return branch if len(asked) == len(branch.asked) else Branch(asked, exact=False)

    def add(self, branch: Branch) -> int:
        """The number of its bit. The caller has seen to it that the page is not full."""
        if self._free:
            number = heappop(self._free)
        else:
            number, self._top = self._top, self._top + 1
            self._bits.append(1 << number)
        self._used |= self._bits[number]
        for name, values in branch.asked.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column()
            column.toggle(values, self._bits[number])
        return number

    def remove(self, number: int, branch: Branch) -> None:
        self._used ^= self._bits[number]
        for name, values in branch.asked.items():
            if not self._columns[name].toggle(values, self._bits[number]):
                del self._columns[name]
        heappush(self._free, number)

    def met(self, messages: Sequence[Fields]) -> list[int]:
        """For each message the bits of the branches that it meets. Column by column, as memory is read."""
        failed = [0] * len(messages)
        for name, column in self._columns.items():
            column.fail([fields.get(name) for fields in messages], failed)
        used = self._used
        return [used & ~bits for bits in failed]


def numbers_of(bits: int) -> list[int]:
    """Which bits are set, ascending."""
    octets = numpy.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), numpy.uint8)
    flags = numpy.unpackbits(octets, bitorder="little").view(numpy.bool_)  # nonzero is four times as fast on booleans
    found: list[int] = flags.nonzero()[0].tolist()
    return found
