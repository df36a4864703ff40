"""A delivered message, as the application sees it.

A `Delivery` is one batch that arrived; its `Message` objects are made one by one, as they are asked for, and look
into its columns only when a field of theirs is read.
"""
import time
from collections.abc import Awaitable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import msgspec

from angarium.client.dead_letter import DeadLetter, dead_letter_of
from angarium.client.destination import Destination
from angarium.client.fields import (
    NON_PERSISTENT,
    PERSISTENT,
    MessageFields,
    decode_body,
    decode_map,
    decode_properties,
    decode_reply_to,
)
from angarium.client.stream_reading import IncomingStream
from angarium.client.values import TypedMap, TypedStream
from angarium.core.errors import Rejected
from angarium.core.ids import format_id, message_id
from angarium.core.ranges import RangeSet
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Outcome
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns

if TYPE_CHECKING:
    from angarium.client.consumer import Consumer

_EXPIRY = int(Columns.EXPIRY)
_SENT_ON = ("correlation_id", "type", "group", "group_sequence", "deduplication_id", "last_value_key")


def now_ms() -> int:
    return int(time.time() * 1000)


class Delivery:
    __slots__ = (
        "__weakref__", "_expiries_ms", "_priorities", "arrived_ms", "batch", "consumer", "high", "lost", "low",
        "positions", "redeliveries",
    )  # fmt: skip

    def __init__(
        self, consumer: "Consumer", batch: Batch, positions: Sequence[int], redeliveries: list[int], low: int, high: int
    ) -> None:
        self.consumer = consumer
        self.batch = batch
        self.positions = positions  # of all messages of the batch
        self.redeliveries = redeliveries
        self.low = low
        self.high = high
        self.lost: RangeSet | None = None  # positions that are no longer ours
        self._priorities: bytes | None = None
        self._expiries_ms: memoryview | None = None
        self.arrived_ms = now_ms() if batch.columns & _EXPIRY else 0

    @property
    def expires(self) -> bool:
        """Some message in it does."""
        return self.arrived_ms > 0

    def has_expired(self, index: int) -> bool:
        """While it lay here. What had expired by this clock when it arrived had not by the broker's, which counts: else
        clocks that differ would send it to and fro."""
        return self.arrived_ms > 0 and self.arrived_ms < self.expires_ms(index) <= now_ms()

    def messages(self, message_type: "type[Message]") -> "Iterator[Message]":
        batch, low, high = self.batch, self.low, self.high
        bodies = batch.bodies() if high - low == batch.count else [batch.body(i) for i in range(low, high)]
        return map(message_type, repeat(self), range(low, high), self.positions[low:high], bodies)

    def headers(self, index: int) -> dict[str, Any]:
        return decode_map(self.batch.headers_of(index))

    def priority(self, index: int) -> int:
        if self._priorities is None:
            self._priorities = self.batch.priorities() or bytes([PRIORITY_DEFAULT]) * self.batch.count
        return self._priorities[index]

    def expires_ms(self, index: int) -> int:
        if self._expiries_ms is None:
            self._expiries_ms = self.batch.expiries_ms() or memoryview(bytes(8 * self.batch.count)).cast("q")
        return int(self._expiries_ms[index])


class Message(msgspec.Struct, gc=False, eq=False):
    """One delivery of one message. Settle, reject or release it once; each returns something that may be awaited, and
    is done at once: the settlement leaves by itself, soon. `Session.sync` waits until it is durable."""

    delivery: Delivery
    index: int
    position: int
    body: bytes
    outcome: int = 0  # an Outcome once it has one

    def settle(self) -> Awaitable[None]:
        """Done with: it will not be delivered again."""
        delivery = self.delivery
        consumer = delivery.consumer
        if self.position == consumer.run_high and not self.outcome and delivery.lost is None:
            self.outcome = 1
            consumer.run_high += 1
            return consumer.done
        return consumer.settle(self, Outcome.SETTLE)

    def reject(self) -> Awaitable[None]:
        """It cannot be processed: taken off the queue or subscription, and counted as rejected."""
        return self.delivery.consumer.settle(self, Outcome.REJECT)

    def release(self) -> Awaitable[None]:
        """Give it back: it is delivered again, to whoever comes first, with a higher redelivery count."""
        return self.delivery.consumer.settle(self, Outcome.RELEASE)

    def acknowledge(self) -> None:
        """As JMS has it: in a session that acknowledges by `client`, all that it has handed out so far is settled; by
        `individual`, this message; otherwise nothing happens, since the session sees to it."""
        self.delivery.consumer.acknowledge(self)

    # -- the body --------------------------------------------------------------------------------

    @property
    def content(self) -> str | None:
        """What the body is: None (bytes), `text`, `map`, `stream`, or `plain` (there is none)."""
        return self._header("content")

    @property
    def value(self) -> Any:
        """The body as it was sent: bytes, str, a TypedMap, a TypedStream, or None."""
        return decode_body(self.body, self.content)

    @property
    def stream_bytes(self) -> int | None:
        """How long the body is that `open` reads; None if it is an ordinary one, in `body`."""
        stream = self._header("stream")
        return stream["bytes"] if stream else None

    def open(self) -> IncomingStream:
        """Read the body as a stream: from the broker, piece by piece, if it was sent as one (`body` is empty then).

        It can be read while the message is not settled, as often as one likes.
        """
        size = self.stream_bytes
        if size is None:
            return IncomingStream(None, 0, len(self.body), self.body)
        return self.delivery.consumer.open_stream(self.position, size)

    @property
    def text(self) -> str:
        """The body, if it is text, or bytes that can be read as UTF-8."""
        try:
            if self.content in (None, "text"):
                return self.body.decode()
        except UnicodeDecodeError:
            raise Rejected("bad-conversion", f"{self} has a body that is no text in UTF-8; it is in .body") from None
        return self._body_as("text")  # type: ignore[no-any-return]

    @property
    def map(self) -> TypedMap:
        return self._body_as("map")  # type: ignore[no-any-return]

    @property
    def stream(self) -> TypedStream:
        """Each time a new one, which reads from the beginning."""
        return self._body_as("stream")  # type: ignore[no-any-return]

    def _body_as(self, content: str) -> Any:
        if self.content != content:
            raise Rejected("bad-conversion", f"{self} holds {self.content!r}, not {content!r}: see .value")
        return decode_body(self.body, content)

    # -- what else it carries --------------------------------------------------------------------

    @property
    def id(self) -> bytes:
        """24 bytes, the same in every delivery."""
        batch = self.delivery.batch
        return message_id(batch.producer, batch.sequence(self.index))

    @property
    def id_text(self) -> str:
        """The id as people and selectors see it: `ID:` and letters."""
        return format_id(self.id)

    @property
    def destination(self) -> str:
        return self.delivery.consumer.destination

    @property
    def timestamp_ms(self) -> int:
        """When it was sent, by the sender's clock; milliseconds since 1970."""
        return self.delivery.batch.timestamp_ms

    @property
    def priority(self) -> int:
        return self.delivery.priority(self.index)

    @property
    def expires_ms(self) -> int:
        """Milliseconds since 1970; 0 is never."""
        return self.delivery.expires_ms(self.index)

    @property
    def has_expired(self) -> bool:
        """It has, while it lay here."""
        return self.delivery.has_expired(self.index)

    @property
    def due_ms(self) -> int:
        """It was not to be delivered before: milliseconds since 1970. Without a delay, when it was sent."""
        dues_ms = self.delivery.batch.dues_ms()
        due_ms = int(dues_ms[self.index]) if dues_ms is not None else 0
        return due_ms or self.timestamp_ms

    @property
    def delivery_mode(self) -> str:
        """`persistent` or `non-persistent`."""
        return "non-persistent" if self._header("delivery_mode") == NON_PERSISTENT else PERSISTENT

    @property
    def redelivery_count(self) -> int:
        redeliveries = self.delivery.redeliveries
        return redeliveries[self.index] if redeliveries else 0

    @property
    def redelivered(self) -> bool:
        return self.redelivery_count > 0

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.redelivery_count + 1

    @property
    def properties(self) -> TypedMap:
        return decode_properties(self.delivery.batch.properties_of(self.index))

    @property
    def correlation_id(self) -> str | bytes | None:
        return self._header("correlation_id")

    @property
    def reply_to(self) -> Destination | None:
        return decode_reply_to(self.delivery.headers(self.index))

    @property
    def type(self) -> str | None:
        return self._header("type")

    @property
    def group(self) -> str | None:
        return self._header("group")

    @property
    def group_sequence(self) -> int | None:
        return self._header("group_sequence")

    @property
    def deduplication_id(self) -> str | None:
        return self._header("deduplication_id")

    @property
    def last_value_key(self) -> str | None:
        return self._header("last_value_key")

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Of a message in the dead message queue: where it died, when and why. None elsewhere."""
        return dead_letter_of(self._header("dead_letter"))

    def _header(self, name: str) -> Any | None:
        return self.delivery.headers(self.index).get(name)

    def fields(self) -> MessageFields:
        """What its sender said with it, for sending it on: `session.send(other, message.value, **message.fields())`.

        Without what each sending says anew: priority, delivery mode, when it expires and when it is due.
        """
        headers = self.delivery.headers(self.index)
        fields: dict[str, Any] = {name: headers[name] for name in _SENT_ON if name in headers}
        if (reply_to := decode_reply_to(headers)) is not None:
            fields["reply_to"] = reply_to
        if properties := self.properties:
            fields["properties"] = dict(properties)
        return cast(MessageFields, fields)

    @property
    def lost(self) -> bool:
        """It is no longer ours, after a long disconnection or because its consumer failed: settling it does nothing."""
        delivery = self.delivery
        if delivery.lost is not None and self.position in delivery.lost:
            return True
        return not self.outcome and delivery.consumer.error is not None

    def __repr__(self) -> str:
        return f"<Message {self.position} of '{self.destination}', {len(self.body):,} bytes>"
