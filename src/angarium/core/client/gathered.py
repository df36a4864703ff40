"""Messages of one producer that wait to become one batch.

A batch holds at most `BATCH_COST_MAX`, where a message costs its bytes and `MESSAGE_COST`: so one counter keeps both
limits, 512 KiB of bodies and 32,768 messages. Of those of which a broker stores something by itself, each of which
costs `SINGLE_COST` more, a batch has 254. A single message may cost more than a batch; it then travels alone.

Options are sparse: a plain message costs one append, and columns are built only for a batch that needs them.
"""
from functools import reduce
from operator import or_
from typing import NamedTuple

from angarium.core.wire.layout import PRIORITY_DEFAULT, SINGLE_ANNOUNCEMENTS
from angarium.core.wire.packing import NO_COLUMNS, MessageColumns, pack

BATCH_COST_MAX = 512 * 1024
MESSAGE_COST = 16
SINGLE_COST = 2_048
BATCH_MESSAGES_MAX = BATCH_COST_MAX // MESSAGE_COST
_COLUMNS_BYTES_MAX = 29 - MESSAGE_COST  # offsets and all optional columns take at most 29 bytes for each message ...
_BATCH_BYTES_OVERHEAD_MAX = 128  # ... and the header, the extra offsets and the padding no more than this


class Options(NamedTuple):
    """What a message has beside its body."""

    priority: int = PRIORITY_DEFAULT
    expiry_ms: int = 0
    headers: bytes = b""  # a MessagePack map, or nothing
    properties: bytes = b""  # the same
    due_ms: int = 0  # not delivered before
    announcements: int = 0  # bits of Columns, for what is in the headers


_DEFAULTS = Options()


def options_cost(options: Options) -> int:
    single = SINGLE_COST if options.due_ms or options.announcements & SINGLE_ANNOUNCEMENTS else 0
    return len(options.headers) + len(options.properties) + single


class Gathered:
    __slots__ = ("bodies", "cost", "is_alone", "options", "timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        self.bodies: list[bytes] = []
        self.options: dict[int, Options] = {}  # by index into bodies
        self.cost = 0  # kept by whoever appends
        self.timestamp_ms = timestamp_ms  # of the first message
        self.is_alone = False  # one message that may be refused for itself: nothing joins its batch

    def __len__(self) -> int:
        return len(self.bodies)

    def append(self, body: bytes, options: Options | None = None) -> None:
        if options is not None:
            self.options[len(self.bodies)] = options
            self.cost += options_cost(options)
        self.bodies.append(body)
        self.cost += len(body) + MESSAGE_COST

    def takes(self, other: "Gathered") -> bool:
        """Whether both together are still one batch."""
        return self.cost + other.cost <= BATCH_COST_MAX and not (self.is_alone or other.is_alone)

    def extend(self, other: "Gathered") -> None:
        if other.options:
            offset = len(self.bodies)
            self.options.update((offset + index, options) for index, options in other.options.items())
        self.bodies += other.bodies
        self.cost += other.cost

    def halves(self) -> tuple["Gathered", "Gathered"]:
        """The same messages, at least two, as two batches."""
        middle = len(self.bodies) // 2
        parts = Gathered(self.timestamp_ms), Gathered(self.timestamp_ms)
        for index, body in enumerate(self.bodies):
            parts[index >= middle].append(body, self.options.get(index))
        return parts

    def bytes_max(self) -> int:
        """The batch will not be longer than this."""
        return self.cost + _COLUMNS_BYTES_MAX * len(self.bodies) + _BATCH_BYTES_OVERHEAD_MAX

    def pack(self, producer: bytes, sequence: int) -> bytes:
        columns = self._columns() if self.options else NO_COLUMNS
        return pack(producer, sequence, self.timestamp_ms, self.bodies, columns)

    def _columns(self) -> MessageColumns:
        get, indices = self.options.get, range(len(self.bodies))
        priorities, expiries_ms, headers, properties, dues_ms, announcements = zip(
            *(get(i, _DEFAULTS) for i in indices), strict=True
        )
        return MessageColumns(
            priorities=priorities if any(p != PRIORITY_DEFAULT for p in priorities) else None,
            expiries_ms=expiries_ms if any(expiries_ms) else None,
            headers=headers if any(headers) else None,
            properties=properties if any(properties) else None,
            dues_ms=dues_ms if any(dues_ms) else None,
            announcements=reduce(or_, announcements),
        )
