"""What the bus promises, compared with what happens on a simulated one.

- A receiver gets of a stream exactly the messages from the number in `StreamStarted` to the one in `StreamLost` or
  `StreamEnded`: none lost, none twice, none out of order, none changed.
- Nobody loses a stream whose sender did not put it out, unless it was itself taken out of the view.
- Those who see a stream end see the same end.
- Repairs stay within their share of the data plus the constant, counted as they leave.
- Rings and buffers stay within their limits.
"""
from collections import Counter

from angarium.core.bus.channel import Channel
from angarium.core.bus.datagram import HEADER, Kind
from angarium.core.bus.events import BusSettings
from angarium.sim.messages import Violation

Stream = tuple[int, bytes]  # channel, sender


class BusLedger:
    def __init__(self, settings: BusSettings, *, may_evict: bool = True) -> None:
        self._settings = settings
        self._may_evict = may_evict
        self.sent: dict[Stream, list[bytes]] = {}  # message number n at n - 1
        self.open: dict[tuple[bytes, Stream], int] = {}  # (receiver, stream): the next number it is to get
        self._began: dict[tuple[bytes, Stream], int] = {}
        self._ends: dict[Stream, int] = {}
        self._ends_unbegun: dict[Stream, int] = {}
        self._taken_out: set[bytes] = set()
        self._evicted: Counter[tuple[Stream, bytes]] = Counter()
        self._traffic: dict[Stream, _Traffic] = {}
        self.forwarded: Counter[tuple[Stream, int]] = Counter()  # data sent by another than its sender: (…, sequence)
        self.tally: Counter[str] = Counter()

    # -- what nodes are asked and told -------------------------------------------------------------------

    def sends(self, channel: int, sender: bytes, number: int, messages: list[bytes]) -> None:
        sent = self.sent.setdefault((channel, sender), [])
        if number != len(sent) + 1:
            raise Violation("numbered", f"{sender.hex()} sends {number} after {len(sent)}")
        sent.extend(messages)

    def started(self, receiver: bytes, stream: Stream, number: int) -> None:
        if (receiver, stream) in self.open:
            raise Violation("once", f"a stream began at {number} that was open")
        if not 1 <= number <= len(self.sent.get(stream, ())) + 1:
            raise Violation("true", f"a stream began at {number} that has {len(self.sent.get(stream, ()))}")
        self.open[receiver, stream] = self._began[receiver, stream] = number
        self.tally["started"] += 1

    def delivered(self, receiver: bytes, stream: Stream, number: int, messages: list[bytes]) -> None:
        sent = self.sent.get(stream, [])
        expected = number if receiver == stream[1] else self.open.get((receiver, stream))
        if expected != number:
            raise Violation("in order and once", f"{receiver.hex()} got {number} of {stream}, not {expected}")
        if sent[number - 1 : number - 1 + len(messages)] != messages:
            raise Violation("unchanged", f"{receiver.hex()} got other messages than {number} of {stream}")
        if receiver != stream[1]:
            self.open[receiver, stream] = number + len(messages)
        self.tally["delivered"] += len(messages)

    def evicted(self, receiver: bytes, stream: Stream) -> None:
        if not self._may_evict:
            raise Violation("nobody is put out without need", f"{receiver.hex()} by {stream}")
        self._evicted[stream, receiver] += 1
        self.tally["evicted"] += 1

    def taken_out(self, receiver: bytes) -> None:
        """Of some view, whether it hears of it or not."""
        self._taken_out.add(receiver)

    def lost(self, receiver: bytes, stream: Stream, number: int) -> None:
        self._closes(receiver, stream, number)
        if receiver not in self._taken_out and not self._evicted[stream, receiver]:
            raise Violation("nobody is put out silently", f"{receiver.hex()} lost {stream} at {number}")
        self.tally["lost"] += 1

    def ended(self, receiver: bytes, stream: Stream, number: int) -> None:
        self._closes(receiver, stream, number)
        self.tally["ended"] += 1
        if number == self._began.get((receiver, stream)):  # it got nothing: it may have begun beyond the others' end
            self._ends_unbegun[stream] = min(number, self._ends_unbegun.get(stream, number))
        elif self._ends.setdefault(stream, number) != number:
            raise Violation("ends alike", f"{stream} ended at {number} and at {self._ends[stream]}")
        if self._ends_unbegun.get(stream, number) < self._ends.get(stream, 0):
            raise Violation("ends alike", f"{stream} ended at {self._ends[stream]}, for one before it began")

    def _closes(self, receiver: bytes, stream: Stream, number: int) -> None:
        expected = self.open.pop((receiver, stream), None)
        if expected != number:
            raise Violation("says where it stopped", f"{stream} at {number} for {receiver.hex()}, not {expected}")

    def died(self, node: bytes) -> None:
        for key in [key for key in self.open if key[0] == node]:
            del self.open[key]

    # -- what leaves --------------------------------------------------------------------------------------

    def leaves(self, node: bytes, datagrams: list[bytes], now: float) -> None:
        for datagram in datagrams:
            fields = HEADER.unpack_from(datagram)
            if fields[1] != Kind.DATA:
                continue
            stream, sequence = (fields[3], fields[5]), fields[6]
            if fields[5] != node:
                self.forwarded[stream, sequence] += 1
                continue
            traffic = self._traffic.setdefault(stream, _Traffic(now))
            if traffic.is_repair(sequence, datagram):
                self._check_repairs(traffic, stream, now)

    def _check_repairs(self, traffic: "_Traffic", stream: Stream, now: float) -> None:
        settings = self._settings
        constant = settings.repair_bytes_burst + settings.repair_bytes_per_s * (now - traffic.since)
        allowed = settings.repair_share_max * traffic.data_bytes + constant
        if traffic.repair_bytes > allowed + settings.datagram_bytes_max:
            raise Violation("repairs within budget", f"{stream}: {traffic.repair_bytes:,} of {allowed:,.0f} bytes")

    # -- what nodes hold ----------------------------------------------------------------------------------

    def check_bounds(self, channel: Channel) -> None:
        settings = self._settings
        if channel.sending is not None and channel.sending.waiting > settings.ring_datagrams_max:
            raise Violation("bounded", f"ring of {channel.sending.waiting:,} datagrams")
        for stream in channel.streams.values():
            waiting, kept = stream.held()
            if waiting > settings.window_datagrams or kept > 2 * settings.window_datagrams:
                raise Violation("bounded", f"a stream waits with {waiting:,} and keeps {kept:,} datagrams")

    def totals(self) -> tuple[int, int]:
        """Bytes of data and of repairs."""
        return sum(t.data_bytes for t in self._traffic.values()), sum(t.repair_bytes for t in self._traffic.values())


class _Traffic:
    """Of one stream: data leaves once for each sequence, ascending; whatever is not above is a repair."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.data_bytes = 0
        self.repair_bytes = 0
        self._sealed: dict[int, bytes] = {}

    def is_repair(self, sequence: int, datagram: bytes) -> bool:
        first = self._sealed.get(sequence)
        if first is None:
            self._sealed[sequence] = datagram
            self.data_bytes += len(datagram)
            return False
        if first != datagram:
            raise Violation("one nonce, one content", f"sequence {sequence} was sealed twice")
        self.repair_bytes += len(datagram)
        return True
