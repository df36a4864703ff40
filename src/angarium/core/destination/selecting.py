"""Selectors as they are asked for: checked, and compiled once; and which messages of a batch somebody wants to see who
looks at a log without taking anything."""
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, compress

from angarium.core.destination.arguments import text
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.headers import Names
from angarium.core.errors import Rejected
from angarium.core.ranges import Range, RangeSet
from angarium.core.selector.compiled import CompiledSelector, compile_selector
from angarium.core.selector.fields import Fields
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import Selector
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Request


@dataclass(frozen=True, slots=True)
class Keep:
    wants: Callable[[BatchFields, int], bool]  # the message of that index
    names: Names = None  # that it asks for
    together: Callable[[Iterable[Fields]], list[bool]] | None = None  # the same of many, in two thirds of the time


CHARACTERS_MAX = 65_536  # of a selector, where a node has no settings of its own for it
_TOGETHER_MAX = 256  # messages that are decoded at a time
_KEPT = 32  # selectors: whoever asks page by page, or opens, asks again soon


@lru_cache(maxsize=_KEPT)
def parsed(selector: str) -> Selector | None:
    """None: it selects everything. Raises Rejected."""
    return parse(selector)


@lru_cache(maxsize=_KEPT)
def compiled(selector: str) -> CompiledSelector | None:
    found = parsed(selector)
    return None if found is None else compile_selector(found)


def names_of(selector: str) -> Names:
    """What it asks for."""
    found = parsed(selector)
    return frozenset() if found is None else found.names


def check_length(selector: str, characters_max: int, what: str) -> None:
    if len(selector) > characters_max:
        reason = (
            f"{what}: a selector of {len(selector):,} characters exceeds selector_characters_max {characters_max:,}; "
            "shorten it, or raise the limit"
        )
        raise Rejected("selector-too-long", reason)


def selected_by(request: Request, *, characters_max: int = CHARACTERS_MAX) -> Keep | None:
    """The request's selector; None if it has none."""
    asked = text(request, "selector", "")
    check_length(asked, characters_max, request.command)
    selector = compiled(asked)
    if selector is None:
        return None
    match = selector.match
    return Keep(lambda fields, index: match(fields[index]), names_of(asked), selector.match_batch)


def kept(batch: Batch, base: int, ranges: list[Range], keep: Keep | None) -> list[Range]:
    """The parts of the ranges that are wanted; `base` is the position of the batch's first message."""
    if keep is None:
        return ranges
    fields, found = BatchFields(batch, names=keep.names), RangeSet()
    if keep.together is None:
        for position in chain.from_iterable(range(*part) for part in ranges):
            if keep.wants(fields, position - base):
                found.add(position, position + 1)
        return list(found)
    for low, high in ranges:
        for at in range(low, high, _TOGETHER_MAX):
            end = min(high, at + _TOGETHER_MAX)
            for position in compress(range(at, end), keep.together(fields.between(at - base, end - base))):
                found.add(position, position + 1)
    return list(found)
