"""Applications that send and receive streams, and know by hash what has to arrive.

A message's body is the hash of its stream, so whoever receives it can check what it reads. Senders give some streams
up half way; receivers give some messages back half read, and stop in the middle of reading to begin again.
"""
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from angarium.core.client import events, stream_events
from angarium.core.client.gathered import Options
from angarium.core.stream.blocks import FRAGMENT_BYTES
from angarium.core.wire.frames import DestinationKind, Outcome
from angarium.core.wire.layout import Columns
from angarium.sim.client import SimClient
from angarium.sim.messages import Violation
from angarium.sim.sessions import SimConsumer

_GONE_CODES = frozenset({"not-held", "stream-gone"})
_UNHELD_CODES = frozenset({"no-stream"})  # of one that is read by name, and is not held (any more)


def draw_content(chance: Random, full_counts: Sequence[int] = (0, 0, 1, 3, 6)) -> list[bytes]:
    """Fragments of a stream: empty, a few bytes, or some full ones with another at the end."""
    full = chance.choice(full_counts)
    fill = chance.randrange(256)
    return [bytes([(fill + n) % 256]) * FRAGMENT_BYTES for n in range(full)] + [chance.randbytes(chance.choice((0, 9)))]


@dataclass(slots=True, eq=False)
class Outgoing:
    fragments: list[bytes]
    put: int = 0
    limit: int = 0
    identity: bytes = b""
    sequence: int = 0  # of the message that holds it; 0: not yet published
    is_given_up: bool = False

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(b"".join(self.fragments)).digest()


class StreamSender:
    def __init__(self, client: SimClient, chance: Random, destination: str, *, streams: int) -> None:
        self.client = client
        self.streams_left = streams
        self.sent: list[bytes] = []  # hashes of what was published
        self.full_counts: Sequence[int] = (0, 0, 1, 3, 6)  # fragments of 64 KiB in one stream
        self.pause_s_max = 0.0  # before it goes on
        self.resumed = 0  # gone on with after something of them was stored
        self._chance = chance
        self.destination = destination
        self._session = client.open_session()
        self._session.on_notice = self._told
        self._producer = self._session.produce(destination)
        self._open: dict[int, Outgoing] = {}
        self._last = 0
        client.clock.after(chance.random(), self._begin)

    @property
    def is_done(self) -> bool:
        return not self.client.is_alive or (self.streams_left == 0 and not self._open)

    @property
    def messages_left(self) -> int:
        return self.streams_left

    @messages_left.setter
    def messages_left(self, count: int) -> None:
        self.streams_left = count

    def calm_down(self) -> None:
        """There is nothing that it would stop."""

    def close(self) -> None:
        self._session.close()

    def _begin(self) -> None:
        if not self.client.is_alive or self.streams_left == 0:
            return
        if len(self._open) < 3:
            self._start(draw_content(self._chance, self.full_counts))
            self.streams_left -= 1
        self.client.clock.after(self._chance.random() * 0.5, self._begin)

    def _start(self, fragments: list[bytes]) -> None:
        self._last += 1
        self._open[self._last] = Outgoing(fragments)
        kind = DestinationKind.QUEUE
        self.client.handle(stream_events.OpenStream(self._session.number, self._last, self.destination, kind))

    def _told(self, command: events.Command) -> None:
        match command:
            case stream_events.StreamReady(stream=number, identity=identity):
                if number in self._open:
                    stream = self._open[number]
                    self.resumed += stream.identity == identity and stream.put > 0
                    stream.identity = identity
            case stream_events.StreamAdvanced():
                self._advanced(command)
            case stream_events.StreamEnded(stream=number, code=code, reason=reason):
                self._ended(number, code, reason)
            case events.Confirmed(sequence=sequence):
                done = [n for n, stream in self._open.items() if 0 < stream.sequence <= sequence]
                for number in done:
                    self._close(number)

    def _advanced(self, command: stream_events.StreamAdvanced) -> None:
        number = command.stream
        stream = self._open.get(number)
        if stream is None or stream.sequence:
            return
        stream.limit = command.limit
        # Not from within its own notification.
        pause_s = self._chance.random() * self.pause_s_max if self.pause_s_max else 0.0
        self.client.clock.after(pause_s, partial(self._put, number))
        if command.stored == len(stream.fragments) and not stream.is_given_up:
            self.client.clock.after(0.0, partial(self._publish, number))

    def _put(self, number: int) -> None:
        stream = self._open.get(number)
        while stream is not None and stream.put < min(len(stream.fragments), stream.limit + 1):
            if self._session.is_ended or number not in self._open:
                return
            payload = stream.fragments[stream.put]
            stream.put += 1
            is_last = stream.put == len(stream.fragments)
            self.client.handle(
                stream_events.PutFragment(self._session.number, number, payload, zlib.crc32(payload), is_last)
            )
            if self._chance.random() < 0.03:
                stream.is_given_up = True
                self.client.clock.after(self._chance.random() * 0.02, partial(self._close, number))

    def _publish(self, number: int) -> None:
        stream = self._open.get(number)
        if stream is None or stream.sequence or stream.is_given_up or self._session.is_ended:
            return
        stream.sequence = len(self._producer.facts.bodies) + 1
        header = {"stream": {"identity": stream.identity, "bytes": sum(map(len, stream.fragments))}}
        options = Options(headers=msgspec.msgpack.encode(header), announcements=int(Columns.STREAM))
        self.sent.append(stream.digest)
        self._producer.publish([stream.digest], options=options)

    def _close(self, number: int) -> None:
        if self._open.pop(number, None) is not None and not self._session.is_ended:
            close = stream_events.CloseStream(self._session.number, number)
            self.client.clock.after(0.0, partial(self.client.handle, close))

    def _ended(self, number: int, code: str, reason: str) -> None:
        stream = self._open.get(number)
        if stream is None or stream.sequence:  # published: the message holds it by now
            return
        if code != "unknown-stream":
            raise Violation("a stream that keeps the rules is stored", f"{code}: {reason}")
        del self._open[number]  # away for longer than it was kept: again from the start
        self.client.clock.after(0.0, partial(self._start, stream.fragments))


@dataclass(slots=True, eq=False)
class Incoming:
    position: int
    digest: bytes
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)


class StreamReceiver:
    def __init__(self, client: SimClient, chance: Random, destination: str) -> None:
        self.client = client
        self.received: list[bytes] = []  # hashes of what was read to the end and settled
        self.is_calm = False
        self.by_name_chance = 0.0  # that it reads what it holds as somebody does who only looks
        self.messages_left = 0
        self.is_done = True
        self.destination = destination
        self._chance = chance
        self._session = client.open_session()
        self._session.on_notice = self._told
        self._consumer: SimConsumer = self._session.consume(destination, prefetch=chance.randint(1, 4))
        self._reading: dict[int, Incoming] = {}
        self._unheld: dict[int, str] = {}  # positions of which we were told that there is no stream, and still to judge
        self._is_up_to_date = True  # knows what it holds: its consumer was opened since its session was
        self._last = 0

    def calm_down(self) -> None:
        self.is_calm = True

    def close(self) -> None:
        self._session.close()

    def _told(self, command: events.Command) -> None:
        match command:
            case events.MessagesArrived(batch=batch, position=position, low=low, high=high):
                every = command.positions or range(position, position + batch.count)
                for index in range(low, high):
                    self._later(0.0, partial(self._open, every[index], batch.body(index)))
            case stream_events.FragmentArrived():
                self._fragment(command)
            case stream_events.ReaderEnded(reader=number, code=code, reason=reason):
                ended = self._reading.pop(number, None)
                if code in _UNHELD_CODES and ended is not None:
                    self._unheld[ended.position] = f"{code}: {reason}"
                    self._judge()
                elif code not in _GONE_CODES | _UNHELD_CODES:
                    raise Violation("a stream is read as it was written", f"{code}: {reason}")
            case events.SessionReady():
                self._is_up_to_date = False
            case events.ConsumerReady():
                self._is_up_to_date = True
                self._judge()

    def _judge(self) -> None:
        """Who comes back reads by name at once; what was taken from him he hears when his consumer is open."""
        if self._is_up_to_date:
            for position, what in self._unheld.items():
                if position in self._consumer.in_hands:
                    raise Violation("a stream is read as it was written", what)
            self._unheld.clear()

    def _later(self, delay_s: float, action: "partial[None]") -> None:
        self.client.clock.after(delay_s, lambda: None if self._session.is_ended else action())

    def _open(self, position: int, digest: bytes) -> None:
        if position not in self._consumer.in_hands or self._session.is_closing:
            return
        self._last += 1
        self._reading[self._last] = Incoming(position, digest)
        is_by_name = self.by_name_chance and self._chance.random() < self.by_name_chance
        consumer, name = (-1, self.destination) if is_by_name else (self._consumer.number, "")
        self.client.handle(stream_events.OpenReader(self._session.number, self._last, consumer, position, name))

    def _fragment(self, command: stream_events.FragmentArrived) -> None:
        number = command.reader
        incoming = self._reading.get(number)
        if incoming is None:
            return
        incoming.hash.update(command.payload)
        mood = 1.0 if self.is_calm else self._chance.random()
        if command.is_last:
            del self._reading[number]
            if incoming.hash.digest() != incoming.digest:
                raise Violation("a stream is read as it was written", f"position {incoming.position} differs")
            self._later(0.0, partial(self._finish, incoming))
        elif mood < 0.02:  # somebody else shall have it
            del self._reading[number]
            self._later(0.0, partial(self._consumer.settle, incoming.position, incoming.position + 1, Outcome.RELEASE))
        elif mood < 0.04:  # once more, from the start
            del self._reading[number]
            self._later(0.0, partial(self.client.handle, stream_events.CloseReader(self._session.number, number)))
            self._later(0.0, partial(self._open, incoming.position, incoming.digest))
        else:
            use = stream_events.UseFragment(self._session.number, number)
            self._later(self._chance.random() * 0.05, partial(self.client.handle, use))

    def _finish(self, incoming: Incoming) -> None:
        if incoming.position in self._consumer.in_hands:
            self.received.append(incoming.digest)
            self._consumer.settle(incoming.position, incoming.position + 1)
