"""Selectors as they are asked for: checked, and compiled once; and which messages of a batch somebody wants to see who
looks at a log without taking anything."""
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, compress

from angarium.core.destination.arguments import text
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.headers import Names
from angarium.core.errors import Rejected
from angarium.core.ranges import Range, RangeSet
from angarium.core.selector.compiled import CompiledSelector, making
from angarium.core.selector.fields import Fields
from angarium.core.selector.pace import Pace, Portions, finished
from angarium.core.selector.parser import parsing
from angarium.core.selector.syntax import Selector
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Request


@dataclass(frozen=True, slots=True)
class Keep:
    wants: Callable[[BatchFields, int], bool]  # the message of that index
    names: Names = None  # that it asks for
    together: Callable[[Iterable[Fields]], list[bool]] | None = None  # the same of many, in two thirds of the time
    at_once: int = 1 << 62  # messages that one request may ask it about


LIGHT = 20  # comparisons of one selector: past it only so many messages are looked at before others have their turn
HEAVY = 1_000  # the same: past it a message is not looked at as soon as it comes
AT_ONCE = 20_000  # comparisons: some five milliseconds
CHARACTERS_MAX = 1 << 19  # of a selector, where a node has no settings of its own for it
_TOGETHER_MAX = 256  # messages that are decoded at a time
_KEPT = 32  # selectors: whoever asks page by page, or opens, asks again soon


Read = tuple[Selector, CompiledSelector] | None  # None: it selects everything
_read: OrderedDict[str, Read | Rejected] = OrderedDict()


def parsed(selector: str) -> Selector | None:
    """None: it selects everything. Raises Rejected."""
    found = _found(selector)
    return None if found is None else found[0]


def compiled(selector: str) -> CompiledSelector | None:
    found = _found(selector)
    return None if found is None else found[1]


def _found(selector: str) -> Read:
    if selector not in _read:
        finished(reading(selector))
    found = _read[selector]
    _read.move_to_end(selector)
    if isinstance(found, Rejected):
        raise found.with_traceback(None)  # else it would grow with each
    return found


def is_read(selector: str) -> bool:
    """It takes no time any more."""
    return selector in _read


def reading(selector: str) -> Portions[None]:
    """Portion by portion, until it is known what the selector means, or that it is none."""
    found: Read | Rejected = None
    pace = Pace()
    try:
        meant = yield from parsing(selector, pace)
        if meant is not None:
            found = (meant, (yield from making(meant, pace)))
    except Rejected as refusal:
        found = refusal
    _read[selector] = found
    while len(_read) > _KEPT:
        _read.popitem(last=False)


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
    at_once = portion(selector.weight)
    return Keep(lambda fields, index: match(fields[index]), names_of(asked), selector.match_batch, at_once)


def portion(weight: int) -> int:
    """How many messages a selector may be asked about before others have their turn."""
    return 1 << 62 if weight <= LIGHT else max(1, AT_ONCE // weight)


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
