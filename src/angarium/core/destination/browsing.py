"""Looking at messages without taking them: one bounded page at a time, all of them or those that are asked for.

They are shown in the order in which they would be received: the most urgent lane first, within a lane in order. Where
to go on is said by a place, which ascends in this order (`core.wire.lanes`); what is shown has its real position. The
first page tells where each lane ends, and whoever names these ends with the next one is shown what was there when he
began, and comes to an end however fast more arrives.
"""
from collections.abc import Callable
from typing import Any

from angarium.core.destination.arguments import done, number, numbers
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, StoredBatch, ToSession
from angarium.core.destination.log import LANE_COUNT, lane_of
from angarium.core.destination.pending import PendingBrowse
from angarium.core.destination.selecting import Keep, kept
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Reply, Request
from angarium.core.wire.lanes import place_of, urgency_of

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
    ends = sorted(numbers(request, "ends", count_max=LANE_COUNT)) or [place_of(lane.readable) for lane in lanes]
    end_of = {urgency_of(end): end for end in ends}
    for lane in lanes:
        low = max(place, place_of(lane.first))
        high = min(place_of(lane.readable), end_of.get(urgency_of(place_of(lane.first)), 0))
        if low >= high:
            continue  # there was nothing, or nothing is left of it
        if count <= 0:
            return done(session, request, _page([], low, ends))
        position, end = (lane.base + at - place_of(lane.base) for at in (low, high))
        asked = PendingBrowse(destination.identity, session, request.number, count, position, end, ends, keep)
        return Read(read_token(asked), destination.identity, position, bytes_max, end)
    return done(session, request, _page([], max(place, ends[-1]), ends))


def browsed(asked: PendingBrowse, event: BatchesRead, destination: Destination | None) -> Command:
    """Answer with the messages that were read, are wanted, and that some subscription has not settled."""
    wanted = asked.wanted
    parts: list[dict[str, Any]] = []
    payload: list[bytes] = []
    following = asked.position if event.batches else asked.end
    end = asked.end if asked.keep is None else min(asked.end, asked.position + asked.keep.at_once)
    for stored in event.batches:
        if wanted <= 0 or destination is None or following >= end:
            break
        if isinstance(stored, StoredBatch):
            batch = Batch.trusted(stored.data)
            base = stored.end - batch.count
            found = unsettled(destination, max(base, asked.position), min(stored.end, end))
            for low, high in kept(batch, base, found, asked.keep):
                taken = min(high, low + wanted)
                if low < taken:
                    part = batch.slice(low - base, taken - base)
                    parts.append({"position": low, "count": part.count, "bytes": len(part.data)})
                    payload.append(part.data)
                    wanted -= taken - low
                    following = taken
        if wanted > 0:
            following = min(stored.end, end)
    # An empty page is not the end: `next` tells where to go on.
    answer = Reply(asked.request, "", "", _page(parts, place_of(following), asked.ends))
    return ToSession(asked.session, answer, b"".join(payload))


def unsettled(destination: Destination, low: int, high: int) -> list[Range]:
    if len(destination.subscriptions) == 1:
        (subscription,) = destination.subscriptions
        cursor = subscription.cursor_of(lane_of(low))
        return subscription.settled.gaps(max(low, cursor), high) if high > cursor else []
    return [(low, high)] if low < high else []


def _page(parts: list[dict[str, Any]], following: int, ends: list[int]) -> dict[str, Any]:
    return {"parts": parts, "next": following, "ends": ends, "end": ends[-1]}
