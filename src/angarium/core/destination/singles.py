"""Messages of which something is stored by itself: a time, an id, a key or a stream of their own.

A batch is stored as it came, however many messages it has. Of these each makes a row, or several, and has to be looked
at. What a batch or a transaction makes is one group of the journal, and in a cluster one message of the bus: so each of
them counts as `SINGLE_BYTES_MAX` more, each batch behind the first as what is stored of it besides, and past
`write_bytes_max` all of it is refused.
"""
from collections.abc import Sequence

from angarium.core.destination.headers import read_map
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import DUE, PRIORITY, SINGLE_ANNOUNCEMENTS

CODE = "too-many-singles"
SINGLE_BYTES_MAX = 2_000  # the rows of one, with an id and a key of 400 bytes
_PLAIN_BYTES_MAX = 300  # those of a batch besides: its producer and the end of the log
_LANES_BYTES_MAX = 2_000  # the same, and ten lanes
_NAMES = frozenset({"deduplication_id", "last_value_key", "stream"})


def refusal(batches: Sequence[Batch], write_bytes_max: int) -> tuple[str, str] | None:
    """Code and reason, if what they make cannot be written at once."""
    some = [batch for batch in batches if batch.columns & (DUE | SINGLE_ANNOUNCEMENTS)]
    if not some and len(batches) == 1:
        return None
    sent_bytes = sum(len(batch.data) for batch in batches)
    total_bytes = sent_bytes + sum(
        _LANES_BYTES_MAX if batch.columns & PRIORITY else _PLAIN_BYTES_MAX for batch in batches[1:]
    )
    if total_bytes + sum(batch.count for batch in some) * SINGLE_BYTES_MAX <= write_bytes_max:
        return None  # mostly so, and found at once
    singles = sum(map(singles_in, some))
    total_bytes += singles * SINGLE_BYTES_MAX
    if total_bytes <= write_bytes_max:
        return None
    reason = (
        f"{sent_bytes:,} bytes in {len(batches):,} batches, with {singles:,} messages that have a time of delivery, an "
        f"id, a key or a stream of their own, count {total_bytes:,}: at most write_bytes_max {write_bytes_max:,}; send "
        "or commit fewer at a time"
    )
    return CODE, reason


def counts_at_most(batch: Batch) -> int:
    """Bytes, if none of its messages is looked at."""
    singles = batch.count if batch.columns & (DUE | SINGLE_ANNOUNCEMENTS) else 0
    return len(batch.data) + singles * SINGLE_BYTES_MAX


def singles_in(batch: Batch) -> int:
    """How many they are, looked at one by one."""
    dues_ms = batch.dues_ms() if batch.columns & DUE else None
    headers = batch.headers() if batch.columns & SINGLE_ANNOUNCEMENTS else None
    return sum(
        bool(dues_ms is not None and dues_ms[index])
        or bool(headers is not None and not _NAMES.isdisjoint(read_map(headers[index])))
        for index in range(batch.count)
    )
