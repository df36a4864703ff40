"""One page of a log: what a reader wants, and what it is told. The same wherever the batches come from.

Positions are given without gaps. So where batches do not follow each other some were damaged, and are told as missing:
a reader never takes a hole for the log.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from angarium.core.destination.arguments import number, texts
from angarium.core.destination.events import DamagedBatch, StoredBatch
from angarium.core.destination.selecting import Keep, kept, selected_by
from angarium.core.errors import Rejected
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Request
from angarium.core.wire.layout import Columns

READ_BYTES_MAX = 1 << 20  # read for one page, with the batch that reaches it ...
PAGE_BYTES_MAX = 4 << 20  # ... which waits for the next page if they would be more
SELECTED_BYTES_MAX = 256 * 1024  # read for one page with a selector, which costs time for each message
_POSITION_MAX = (1 << 63) - 1
_OMITTED = {"body": 0, "headers": int(Columns.HEADERS), "properties": int(Columns.PROPERTIES)}


class Stretch(NamedTuple):
    """What is stored of a lane, of the destination with that id."""

    identity: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LogWanted:
    position: int
    end: int
    bytes_max: int
    keep: Keep | None  # None: all
    omitted: frozenset[str]  # parts of messages

    @classmethod
    def of(cls, request: Request) -> "LogWanted":
        """Raises Rejected."""
        keep = selected_by(request)
        position, end = number(request, "position", 0), number(request, "end", _POSITION_MAX)
        if not 0 <= position <= end <= _POSITION_MAX:
            raise Rejected("bad-argument", f"positions {position} to {end}: they are 0 to {_POSITION_MAX}, ascending")
        limit_bytes = READ_BYTES_MAX if keep is None else SELECTED_BYTES_MAX
        bytes_max = max(1, min(number(request, "bytes_max", limit_bytes), limit_bytes))
        return cls(position, end, bytes_max, keep, _omitted(request))

    def within(self, stored: Stretch) -> tuple[int | None, int]:
        """The part of the wanted range that is stored; None if nothing of it is."""
        start, stop = max(self.position, stored.first), min(self.end, stored.end)
        return (start if start < stop else None), stop

    def nothing(self, stored: Stretch) -> dict[str, Any]:
        following = max(self.position, min(stored.first, self.end))
        return _told(stored, [], following)

    def page(self, stored: Stretch, batches: Sequence[StoredBatch | DamagedBatch]) -> tuple[dict[str, Any], bytes]:
        """What is told of the batches that were read from where it starts, and the payload."""
        start, stop = self.within(stored)
        if start is None:  # it was freed meanwhile
            return self.nothing(stored), b""
        stop = stop if self.keep is None else min(stop, start + self.keep.at_once)
        parts: list[list[Any]] = []
        payload: list[bytes] = []
        following, room = min(batches[-1].end, stop) if batches else stop, PAGE_BYTES_MAX
        missing: list[int] = []
        seen = start  # all before is told, or missing
        for found in batches:
            if seen >= stop:
                break
            if not isinstance(found, StoredBatch):
                continue  # how many it were tells the next one that is whole
            batch = Batch.trusted(found.data)
            base = found.end - batch.count
            if seen < base:
                missing += (seen, min(base, stop))
            seen = max(seen, found.end)
            low, high = max(base, start), min(found.end, stop)
            wanted = kept(batch, base, [(low, high)], self.keep) if low < high else []
            if not wanted:
                continue
            part = self._part(batch, base, wanted)
            if parts and len(part.data) > room:
                following = seen = base
                break
            room -= len(part.data)
            runs = [place - wanted[0][0] for run in wanted for place in run] if len(wanted) > 1 else []
            parts.append([wanted[0][0], part.count, len(part.data), *([runs] if runs else [])])
            payload.append(part.data)
        if seen < following:
            missing += (seen, following)
        told = _told(stored, parts, following)
        return (told | {"missing": missing} if missing else told), b"".join(payload)

    def _part(self, batch: Batch, base: int, wanted: list[Range]) -> Batch:
        if len(wanted) == 1:
            part = batch.slice(wanted[0][0] - base, wanted[0][1] - base)
        else:
            part = batch.select([position - base for run in wanted for position in range(*run)])
        columns = part.columns & sum(_OMITTED[name] for name in self.omitted)
        bodies = "body" in self.omitted and part.body_bytes > 0
        return part.without(columns, bodies=bodies) if columns or bodies else part


def _omitted(request: Request) -> frozenset[str]:
    omitted = texts(request, "omit", count_max=len(_OMITTED))
    for name in omitted:
        if name not in _OMITTED:
            known = ", ".join(map(repr, _OMITTED))
            raise Rejected("bad-argument", f"{request.command} cannot omit {name!r}; it can omit {known}")
    return frozenset(omitted)


def _told(stored: Stretch, parts: list[list[Any]], following: int) -> dict[str, Any]:
    return {
        "identity": stored.identity, "parts": parts, "next": following, "first": stored.first, "end": stored.end,
    }  # fmt: skip
