"""Which messages of a batch somebody wants to see who looks at a log without taking anything."""
from collections.abc import Callable
from itertools import chain

from angarium.core.destination.arguments import text
from angarium.core.destination.fields import BatchFields
from angarium.core.ranges import Range, RangeSet
from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.parser import parse
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Request

Keep = Callable[[BatchFields, int], bool]  # whether the message of that index is wanted


def selected_by(request: Request) -> Keep | None:
    """The request's selector; None if it has none."""
    selector = parse(text(request, "selector", ""))
    if selector is None:
        return None
    match = compile_selector(selector).match
    return lambda fields, index: match(fields[index])


def kept(batch: Batch, base: int, ranges: list[Range], keep: Keep | None) -> list[Range]:
    """The parts of the ranges that are wanted; `base` is the position of the batch's first message."""
    if keep is None:
        return ranges
    fields, found = BatchFields(batch), RangeSet()
    for position in chain.from_iterable(range(*part) for part in ranges):
        if keep(fields, position - base):
            found.add(position, position + 1)
    return list(found)
