"""Looking at messages without taking them: one bounded page at a time, all of them or those that are asked for.

They are shown in the order in which they would be received: the most urgent lane first, within a lane in order. Where
to go on is said by a place, which ascends in this order (`core.wire.lanes`); what is shown has its real position.
"""
from collections.abc import Callable
from typing import Any

from angarium.core.destination.arguments import done, number
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, StoredBatch, ToSession
from angarium.core.destination.log import lane_of
from angarium.core.destination.pending import PendingBrowse
from angarium.core.destination.selecting import Keep, kept
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Reply, Request
from angarium.core.wire.lanes import place_of

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
    place = max(0, number(request, "place", 0))
    lanes = destination.log.order
    lane = next((lane for lane in lanes if lane.first < lane.readable and place < place_of(lane.readable)), None)
    if lane is None or count <= 0:
        following = max(place, place_of(lane.first) if lane else _end(destination))
        return done(session, request, {"parts": [], "next": following, "end": _end(destination)})
    position = lane.base + max(place, place_of(lane.first)) - place_of(lane.base)
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
    end = place_of(asked.end) if destination is None else _end(destination)
    answer = Reply(asked.request, "", "", {"parts": parts, "next": place_of(following), "end": end})
    return ToSession(asked.session, answer, b"".join(payload))


def unsettled(destination: Destination, low: int, high: int) -> list[Range]:
    if len(destination.subscriptions) == 1:
        (subscription,) = destination.subscriptions
        cursor = subscription.cursor_of(lane_of(low))
        return subscription.settled.gaps(max(low, cursor), high) if high > cursor else []
    return [(low, high)] if low < high else []


def _end(destination: Destination) -> int:
    """The place after the last message of the least urgent lane."""
    return place_of(destination.log.order[-1].readable)
