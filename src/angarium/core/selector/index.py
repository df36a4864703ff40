"""The selectors of all subscriptions of a topic at once: which subscriptions does this message go to?

    add(key, selector) ──normal form──> branches: what a selector asks of each property ──> pages of bits and edges
    match(message) ───────────────────> branches met ──> selectors ──> keys

Whatever a selector says, the answer is that of evaluating it. What can be indexed is: comparisons with literals,
BETWEEN, IN, IS NULL, booleans, LIKE by its prefix, their negations, joined by AND, and OR at the top or within one
property. Where that is not all of a selector, it is compiled, and evaluated for the messages that meet the indexed
part.

Subscriptions with equal selectors share one entry. Without a selector a key matches always. Keys come back in an
order that depends on the history of the index alone. Cost: one look-up for each property named by any selector,
however many selectors there are; so thousands of subscriptions that each name properties of their own gain little.
"""
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from angarium.core.errors import LocalProtocolError
from angarium.core.selector.compiled import CompiledSelector, compile_selector
from angarium.core.selector.fields import Fields
from angarium.core.selector.normal import normal
from angarium.core.selector.page import BITS_MAX, Branch, Page, branches, numbers_of
from angarium.core.selector.syntax import Selector

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Entry(Generic[Key]):
    """One selector and who has it."""

    selector: Selector
    plain: bool  # it has one branch and that is exact: to meet it is to match
    keys: dict[Key, None] = field(default_factory=dict)
    places: list[tuple["_Shelf[Key]", int, Branch]] = field(default_factory=list)
    compiled: CompiledSelector | None = None  # made when it is first needed

    def matches(self, fields: Fields) -> bool:
        if self.compiled is None:
            self.compiled = compile_selector(self.selector)
        return self.compiled.match(fields)


class _Shelf(Generic[Key]):
    """A page and to whom its bits belong."""

    __slots__ = ("direct", "keys", "owners", "page")

    def __init__(self) -> None:
        self.page = Page()
        self.owners: list[_Entry[Key] | None] = []
        self.direct = 0  # the bits that mean exactly one key
        self.keys: list[Key | None] = []  # the key of each direct bit

    def own(self, number: int, entry: _Entry[Key] | None) -> None:
        if number == len(self.owners):
            self.owners.append(None)
            self.keys.append(None)
        self.owners[number] = entry

    def direct_to(self, number: int, entry: _Entry[Key]) -> None:
        """Note for the bit of an entry whether it means one key only, after its keys have changed."""
        direct = entry.plain and len(entry.keys) == 1
        self.keys[number] = next(iter(entry.keys)) if direct else None
        self.direct = self.direct | 1 << number if direct else self.direct & ~(1 << number)


class SelectorIndex(Generic[Key]):
    def __init__(self) -> None:
        self._selectors: dict[Key, Selector | None] = {}
        self._unselective: dict[Key, None] = {}  # keys without a selector
        self._entries: dict[Selector, _Entry[Key]] = {}
        self._shelves: list[_Shelf[Key]] = []
        self._names: Counter[str] = Counter()
        self._names_now: frozenset[str] | None = frozenset()

    def __len__(self) -> int:
        return len(self._selectors)

    def __contains__(self, key: Key) -> bool:
        return key in self._selectors

    @property
    def names(self) -> frozenset[str]:
        """Every name that some selector reads: what a message must be able to answer."""
        if self._names_now is None:
            self._names_now = frozenset(self._names)
        return self._names_now

    def add(self, key: Key, selector: Selector | None) -> None:
        if key in self._selectors:
            raise LocalProtocolError(f"key {key!r} has a selector already; remove it first")
        self._selectors[key] = selector
        if selector is None:
            self._unselective[key] = None
            return
        entry = self._entries.get(selector)
        if entry is None:
            entry = self._entries[selector] = self._placed(selector)
        entry.keys[key] = None
        for shelf, number, _ in entry.places:
            shelf.direct_to(number, entry)

    def remove(self, key: Key) -> None:
        if key not in self._selectors:
            raise LocalProtocolError(f"key {key!r} is not in the index")
        selector = self._selectors.pop(key)
        if selector is None:
            del self._unselective[key]
            return
        entry = self._entries[selector]
        del entry.keys[key]
        for shelf, number, branch in entry.places:
            shelf.direct_to(number, entry)
            if not entry.keys:
                shelf.page.remove(number, branch)
                shelf.own(number, None)
        if not entry.keys:
            del self._entries[selector]
            self._names -= Counter(entry.selector.names)  # drops those at zero
            self._names_now = None

    def match(self, fields: Fields) -> list[Key]:
        """The keys whose selectors match, each once."""
        return self.match_batch([fields])[0]

    def match_batch(self, messages: Sequence[Fields]) -> list[list[Key]]:
        """The same for each message; cheaper for several than for each by itself."""
        found = [list(self._unselective) for _ in messages]
        asked: list[set[_Entry[Key]]] = [set() for _ in messages]  # those that may turn up under several bits
        for shelf in self._shelves:
            for at, met in enumerate(shelf.page.met(messages)):
                direct = met & shelf.direct
                if direct:
                    keys = map(shelf.keys.__getitem__, numbers_of(direct))
                    found[at].extend(keys)  # type: ignore[arg-type]  # a direct bit has its key
                if direct != met:
                    self._ask(shelf, numbers_of(met ^ direct), messages[at], asked[at], found[at])
        return found

    def _ask(
        self, shelf: _Shelf[Key], numbers: list[int], fields: Fields, asked: set[_Entry[Key]], found: list[Key]
    ) -> None:
        for number in numbers:
            entry = shelf.owners[number]
            assert entry is not None, f"bit {number} is set and belongs to nobody"
            if entry.plain:
                found += entry.keys
            elif entry not in asked:
                asked.add(entry)
                if entry.matches(fields):
                    found += entry.keys

    def _placed(self, selector: Selector) -> _Entry[Key]:
        found = branches(normal(selector.condition))
        entry = _Entry[Key](selector, plain=len(found) == 1 and found[0].exact)
        for branch in found:
            shelf = self._shelf_with_room()
            fitting = shelf.page.fitting(branch)
            entry.plain = entry.plain and fitting.exact
            number = shelf.page.add(fitting)
            shelf.own(number, entry)
            entry.places.append((shelf, number, fitting))
        self._names.update(selector.names)
        self._names_now = None
        return entry

    def _shelf_with_room(self) -> _Shelf[Key]:
        for shelf in self._shelves:
            if len(shelf.page) < BITS_MAX:
                return shelf
        self._shelves.append(_Shelf())
        return self._shelves[-1]
