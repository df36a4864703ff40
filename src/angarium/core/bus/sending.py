"""One node's stream on a channel: the ring of what its receivers may still need, and how it leaves.

       base                 next                end
        | sent, some lack it | waits for its turn |
        floor <= every receiver's `next` <= next <= the lowest `next + window` of a receiver

Messages are cut into datagrams when they are sent and sealed when they leave; a repair is the same bytes again. What
every receiver has acknowledged leaves the ring. A receiver joins at the end of the ring, that is, at a message: it says
`Join`, and is told in `Start` where. Until it has acknowledged that, its window is nothing.

Eviction: a receiver that is behind some other one has `evict_after_s` to reach where the other was, or to make
`progress_datagrams_min`; else the stream goes on without it. Where all are behind alike, nobody is put out: they hold
up no one but the sender, who is blocked and says so.
"""
from collections.abc import Sequence

from angarium.core.bus.datagram import LENGTH, OVERHEAD_BYTES, Ack, Evict, Heartbeat, Join, Nak, Start, sequences_of
from angarium.core.bus.events import BusSettings, Message, Part
from angarium.core.bus.pacing import Pace, RepairBudget
from angarium.core.bus.repairing import Repairs
from angarium.core.bus.voice import Voice
from angarium.core.errors import MessageTooLong, Unavailable

_STAMP_MASK = 0xFFFFFFFF
_RTT_S_MAX = 10.0
_TOGETHER = 32  # datagrams for which a stream that is held back by its pace waits


class Receiver:
    """What the sender knows of one receiver."""

    __slots__ = ("behind_at", "behind_goal", "counter", "join", "next", "number", "rtt_s", "start", "window")

    def __init__(self, start: int, number: int) -> None:
        self.start = start
        self.number = number  # of the message at `start`
        self.join = 0  # 0: has not asked yet
        self.next = start
        self.window = 0
        self.counter = 0  # of its newest acknowledgement: an older one says nothing new
        self.rtt_s = 0.0
        self.behind_at: float | None = None  # since when it is behind another, on probation …
        self.behind_goal = 0  # … until it gets there


class SendStream:
    def __init__(self, settings: BusSettings, voice: Voice, now: float) -> None:
        self._settings = settings
        self._voice = voice
        self._body_bytes = settings.datagram_bytes_max - OVERHEAD_BYTES
        self._ring: list[Part] = []
        self.base = self.next = voice.sequence_next
        self.receivers: dict[bytes, Receiver] = {}
        self.evicted: dict[bytes, int] = {}  # receivers we went on without, and the join that ended so
        self.blocked = False
        self.pace = Pace(settings, now)
        self.budget = RepairBudget(settings, now)
        self.repairs = Repairs(settings)
        self._heartbeat_at = now
        self._heartbeat_s = settings.heartbeat_s_min

    # -- what is to be sent ------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.base + len(self._ring)

    @property
    def waiting(self) -> int:
        return len(self._ring)

    @property
    def floor(self) -> int:
        return min((r.next for r in self.receivers.values()), default=self.next)

    def check(self, lengths: Sequence[int], gathered_bytes: int = 0) -> int:
        """To be called before `submit`: raises if messages of that length have no room, also for what the caller has
        gathered before; changes nothing. The bytes that they take."""
        settings = self._settings
        size = gathered_bytes
        for length in lengths:
            if length > settings.message_bytes_max:
                raise MessageTooLong(
                    f"channel {self._voice.channel}: message of {length:,} bytes exceeds message_bytes_max "
                    f"{settings.message_bytes_max:,}; send it in parts"
                )
            size += LENGTH.size + length
        room = settings.ring_datagrams_max - len(self._ring)
        if -(-size // self._body_bytes) > room:
            raise Unavailable(
                f"channel {self._voice.channel}: {size:,} bytes do not fit the ring ({room:,} of "
                f"{settings.ring_datagrams_max:,} datagrams free); wait for ChannelUnblocked"
            )
        return size - gathered_bytes

    def submit(self, messages: Sequence[Message], lengths: Sequence[int]) -> None:
        voice = self._voice
        voice.number_next += len(messages)
        if not self.receivers:
            return  # nobody is there to need it
        records: list[Part] = []
        for message, length in zip(messages, lengths, strict=True):
            records.append(LENGTH.pack(length))
            records += message
        stream = memoryview(b"".join(records))
        step = self._body_bytes
        self._ring.extend([stream[at : at + step] for at in range(0, len(stream), step)])
        voice.sequence_next = self.end

    def is_full(self, gathered_bytes: int) -> bool:
        """Whether it is blocked, or would be with that much more."""
        return self.blocked or self.waiting + gathered_bytes // self._body_bytes > self._settings.ring_datagrams_high

    def update_blocked(self) -> bool:
        """Whether that has changed."""
        waiting = len(self._ring)
        if self.blocked:
            changed = waiting <= self._settings.ring_datagrams_low
        else:
            changed = waiting > self._settings.ring_datagrams_high
        self.blocked ^= changed
        return changed

    # -- what leaves ---------------------------------------------------------------------------------------

    def pump(self, now: float) -> list[bytes]:
        """Data that may leave now, in order."""
        end = min(self.end, self._limit())
        if end <= self.next:
            return []
        pace, full = self.pace, self._settings.datagram_bytes_max
        count = min(end - self.next, pace.allowance(now) // full)
        if count <= 0:
            return []
        ring, base, first, floor, seal = self._ring, self.base, self.next, self.floor, self._voice.data
        datagrams = [seal(s, floor, ring[s - base]) for s in range(first, first + count)]
        ring[first - base : first - base + count] = datagrams
        self.next = first + count
        size = sum(map(len, datagrams))
        pace.spend(size, count, now)
        self.budget.earn(size)
        self._heartbeat_s = self._settings.heartbeat_s_min
        self._heartbeat_at = min(self._heartbeat_at, now + self._heartbeat_s)
        return datagrams

    def _limit(self) -> int:
        return min((r.next + r.window for r in self.receivers.values()), default=self.next)

    def repair(self, now: float) -> tuple[list[bytes], dict[bytes, list[bytes]]]:
        """Repairs that are due: for all, and for one each."""
        receivers = self.receivers

        def find(sequence: int, asker: bytes | None) -> Part | None:
            receiver = receivers.get(asker) if asker is not None else None
            if asker is not None and (receiver is None or sequence < receiver.next):
                return None  # it is gone, or has got it meanwhile
            return self._ring[sequence - self.base] if self.base <= sequence < self.next else None

        return self.repairs.take(find, self.budget, now)

    def heartbeat(self, now: float) -> bytes | None:
        if now < self._heartbeat_at or not self.receivers:
            return None
        settings = self._settings
        if self.floor >= self.end:  # idle: all of it has arrived
            self._heartbeat_s = min(self._heartbeat_s * 2, settings.heartbeat_s_max)
        else:
            self._heartbeat_s = settings.heartbeat_s_min
        self._heartbeat_at = now + self._heartbeat_s
        return self._voice.say(Heartbeat(self.next, self.floor, stamp_of(now), int(self.rtt_s * 1e6)))

    @property
    def rtt_s(self) -> float:
        return max((r.rtt_s for r in self.receivers.values()), default=0.0)

    def deadline(self) -> float | None:
        if not self.receivers:
            return None
        due = self._heartbeat_at
        waiting = min(self.end, self._limit()) - self.next
        if waiting > 0:  # not for every single one: they leave together
            due = min(due, self.pace.ready_at(min(waiting, _TOGETHER) * self._settings.datagram_bytes_max))
        repair_at = self.repairs.due_at(self.budget)
        if repair_at is not None:
            due = min(due, repair_at)
        for receiver in self.receivers.values():
            if receiver.behind_at is not None:
                due = min(due, receiver.behind_at + self._settings.evict_after_s)
        return due

    # -- what receivers say ----------------------------------------------------------------------------------

    def joined(self, incarnation: bytes, join: Join, now: float) -> bytes | None:
        """The answer to a Join, if it deserves one."""
        receiver = self.receivers.get(incarnation)
        if receiver is None:
            if join.join <= self.evicted.get(incarnation, join.join):
                return None  # no receiver, or it asked before we went on without it
            del self.evicted[incarnation]
            receiver = self._add(incarnation)
        elif receiver.join and join.join > receiver.join:
            receiver = self._add(incarnation)
        if join.join < receiver.join:
            return None
        receiver.join = join.join
        stamp = stamp_of(now)
        return self._voice.say(Start(incarnation, join.join, receiver.start, receiver.number, stamp))

    def acknowledged(self, incarnation: bytes, ack: Ack, counter: int, now: float) -> None:
        receiver = self.receivers.get(incarnation)
        if receiver is None or ack.join != receiver.join or counter <= receiver.counter:
            return
        if ack.next > max(self.next, receiver.start):
            return  # more than was sent: no receiver of ours says so
        receiver.counter = counter
        receiver.next = max(receiver.next, ack.next)
        receiver.window = min(ack.window, self._settings.window_datagrams)
        if ack.echo:
            sample = ((stamp_of(now) - ack.echo) & _STAMP_MASK) / 1e6
            if sample < _RTT_S_MAX:
                receiver.rtt_s = sample if not receiver.rtt_s else receiver.rtt_s * 0.8 + sample * 0.2
        self._trim()

    def asked(self, incarnation: bytes, nak: Nak, now: float) -> None:
        receiver = self.receivers.get(incarnation)
        if receiver is None:
            return
        wanted = [s for s in sequences_of(nak) if receiver.next <= s < self.next]
        backoff = max(self._settings.nak_backoff_s_min, self.rtt_s)
        self.pace.lost(self.repairs.ask(incarnation, wanted, ignored_s=backoff / 2, now=now))

    def refusal(self, incarnation: bytes, join: int) -> bytes | None:
        """For one that speaks as if it received what we do not send it: it was put out, or was taken out of the view
        and in again without noticing."""
        receiver = self.receivers.get(incarnation)
        if receiver is not None and receiver.join == join:
            return None
        return self._voice.say(Evict(incarnation, join))

    # -- who receives ------------------------------------------------------------------------------------------

    def change(self, receivers: tuple[bytes, ...], now: float) -> None:
        for gone in [r for r in self.receivers if r not in receivers]:
            del self.receivers[gone]
        self.evicted = {r: join for r, join in self.evicted.items() if r in receivers}
        for incarnation in receivers:
            if incarnation not in self.receivers and incarnation not in self.evicted:
                self._add(incarnation)
        self._heartbeat_at = now  # so that newcomers know that we are here
        self._trim()

    def _add(self, incarnation: bytes) -> Receiver:
        receiver = self.receivers[incarnation] = Receiver(self.end, self._voice.number_next)
        self._trim()  # it may be the only one, and need nothing of what is there
        return receiver

    def evict(self, now: float) -> list[bytes]:
        """Those that we go on without from now on."""
        best = max((r.next for r in self.receivers.values()), default=0)
        put_out = []
        for incarnation, receiver in list(self.receivers.items()):
            if receiver.next >= best:
                receiver.behind_at = None
            elif receiver.behind_at is None or receiver.next >= receiver.behind_goal:
                receiver.behind_at = now
                receiver.behind_goal = min(best, receiver.next + self._settings.progress_datagrams_min)
            elif now >= receiver.behind_at + self._settings.evict_after_s:
                del self.receivers[incarnation]
                self.evicted[incarnation] = receiver.join
                put_out.append(incarnation)
        if put_out:
            self._trim()
        return put_out

    def _trim(self) -> None:
        if not self.receivers:  # what waits was for those who are gone
            self._ring.clear()
            self.base = self.next = self._voice.sequence_next
            return
        floor = self.floor
        if floor > self.base:
            del self._ring[: floor - self.base]
            self.base = floor
            self.next = max(self.next, floor)  # what was never sent was for those who are gone
            self.repairs.forget_below(floor)


def lengths_of(messages: Sequence[Message]) -> list[int]:
    return [len(message[0]) if len(message) == 1 else sum(map(len, message)) for message in messages]


def stamp_of(now: float) -> int:
    return int(now * 1e6) & _STAMP_MASK or 1
