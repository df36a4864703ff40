"""Looking at messages without taking them: one bounded page at a time, all of them or those that are asked for.

Browsing goes by position, not by urgency: so that one number says where to go on.
"""
from collections.abc import Callable
from typing import Any

from angarium.core.destination.arguments import done, number
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, StoredBatch, ToSession
from angarium.core.destination.log import Lane, lane_of
from angarium.core.destination.pending import PendingBrowse
from angarium.core.destination.selecting import Keep, kept
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Reply, Request

READ_BYTES_MAX = 1 << 20


def browse(
    destination: Destination,
    session: bytes,
    request: Request,
    keep: Keep | None,
    read_token: Callable[[PendingBrowse], int],
) -> Command:
    count = number(request, "count", 100)
    bytes_max = max(1, min(number(request, "bytes_max", READ_BYTES_MAX), READ_BYTES_MAX))
    position = max(0, number(request, "position", 0))
    lanes = _ascending(destination)
    lane = next((lane for lane in lanes if position < lane.readable), None)
    if lane is None or count <= 0:
        following = max(position, lane.first if lane else lanes[-1].readable)
        return done(session, request, {"parts": [], "next": following, "end": lanes[-1].readable})
    position = max(position, lane.first)
    asked = PendingBrowse(destination.identity, session, request.number, count, position, lane.readable, keep)
    return Read(read_token(asked), destination.identity, position, bytes_max, lane.readable)


def browsed(asked: PendingBrowse, event: BatchesRead, destination: Destination | None) -> Command:
    """Answer with the messages that were read, are wanted, and that some subscription has not settled."""
    wanted = asked.wanted
    parts: list[dict[str, Any]] = []
    payload: list[bytes] = []
    following = asked.position if event.batches else asked.end
    for stored in event.batches:
        if wanted <= 0 or destination is None:
            break
        if isinstance(stored, StoredBatch):
            batch = Batch.trusted(stored.data)
            base = stored.end - batch.count
            found = unsettled(destination, max(base, asked.position), min(stored.end, asked.end))
            for low, high in kept(batch, base, found, asked.keep):
                taken = min(high, low + wanted)
                if low < taken:
                    part = batch.slice(low - base, taken - base)
                    parts.append({"position": low, "count": part.count, "bytes": len(part.data)})
                    payload.append(part.data)
                    wanted -= taken - low
                    following = taken
        if wanted > 0:
            following = min(stored.end, asked.end)
    # An empty page is not the end: `next` tells where to go on.
    end = asked.end if destination is None else _ascending(destination)[-1].readable
    answer = Reply(asked.request, "", "", {"parts": parts, "next": following, "end": end})
    return ToSession(asked.session, answer, b"".join(payload))


def unsettled(destination: Destination, low: int, high: int) -> list[Range]:
    if len(destination.subscriptions) == 1:
        (subscription,) = destination.subscriptions
        cursor = subscription.cursor_of(lane_of(low))
        return subscription.settled.gaps(max(low, cursor), high) if high > cursor else []
    return [(low, high)] if low < high else []


def _ascending(destination: Destination) -> list[Lane]:
    return [lane for _, lane in sorted(destination.log.lanes.items())]
