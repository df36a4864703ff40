"""The dead message queue: where messages go that cannot be delivered, with where they came from and why.

The move is one write: it is appended here and settled there, or neither. A dead message keeps its id, body, properties
and priority; it no longer expires and is not delayed. What happened stands in the header `dead_letter`:

    destination, subscription, position   where it was
    reason                                expired, redelivery-limit, limit-exceeded, node-limit, rejected, damaged
    deliveries                            how often it was delivered
    died_ms, expiry_ms                    when; and when it would have expired, 0 for never
"""
import msgspec

from angarium.core.destination.delivery import Death
from angarium.core.destination.headers import read_map
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack

HEADER = "dead_letter"
_encode = msgspec.msgpack.Encoder().encode
_KEPT = int(Columns.GROUP | Columns.KEY | Columns.STREAM)


def dead_batch(state: DestinationState, subscription: Subscription, death: Death, *, wall_ms: int) -> Batch:
    """The dead messages as they are to be stored."""
    positions = [position for low, high in death.positions for position in range(low, high)]
    batch = death.batch.select([position - death.base for position in positions])
    headers, expiries = batch.headers(), batch.expiries_ms()
    written: list[bytes] = []
    for index, position in enumerate(positions):
        header = read_map(headers[index]) if headers is not None else {}
        header[HEADER] = {
            "destination": state.record.name,
            "subscription": subscription.name,
            "position": position,
            "reason": death.reason,
            "deliveries": (death.redeliveries[index] if death.redeliveries else 0) + (death.reason == "rejected"),
            "died_ms": wall_ms,
            "expiry_ms": 0 if expiries is None else int(expiries[index]),
        }
        written.append(_encode(header))
    return rewritten(batch, written)


def rewritten(batch: Batch, headers: list[bytes], *, expiries_ms: list[int] | None = None) -> Batch:
    """The same messages with other headers."""
    columns = MessageColumns(
        priorities=batch.priorities(),
        expiries_ms=expiries_ms,
        headers=headers,
        properties=batch.properties(),
        sequences=batch.sequences() if batch.columns & Columns.SEQUENCE else None,
        announcements=batch.columns & _KEPT,
    )
    return Batch.trusted(pack(batch.producer, batch.first_sequence, batch.timestamp_ms, batch.bodies(), columns))

