"""The stream of one sender as one receiver has it: whole messages, in order, each once.

    JOINING --Start--> OPEN --Evict, damage--> LOST --Rejoin--> JOINING
                         \\--the sender leaves the view--> closing (`closing.py`)

Datagrams ahead of the first missing one wait, at most a window of them. What is missing is asked for in one question
that lists all of it (as bits), after a back-off; asked in vain, the back-off doubles. What arrived is kept, sealed as
it came, until every receiver has it (the header's lag says so): should the sender die, receivers repair each other.
"""
from collections.abc import Callable
from enum import Enum
from itertools import islice

from angarium.core.bus.datagram import (
    HEADER_BYTES,
    NAK_BODY_BYTES,
    OVERHEAD_BYTES,
    Ack,
    Heartbeat,
    Join,
    Nak,
    Start,
    bits_of,
)
from angarium.core.bus.events import BusSettings
from angarium.core.bus.records import RecordParser
from angarium.core.bus.seal import DATA, Box
from angarium.core.bus.voice import Voice


class StreamState(Enum):
    JOINING = 1
    OPEN = 2
    LOST = 3


class ReceiveStream:
    def __init__(
        self, settings: BusSettings, voice: Voice, sender: bytes, box: Box, jitter: Callable[[], float], now: float
    ) -> None:
        self._settings = settings
        self._voice = voice
        self._jitter = jitter
        self.sender = sender
        self.box = box
        self.state = StreamState.JOINING
        self.start = 0  # sequence at which it began here
        self.next = 0  # first sequence that is missing
        self.number = 0  # of the next message
        self.end = 0  # as far as we know the stream to go
        self.join = 0
        self.paused = False
        self._parser = RecordParser(message_bytes_max=settings.message_bytes_max)
        self._ahead: dict[int, bytes] = {}  # opened bodies beyond `next`: at most a window
        self._ready: list[bytes] = []  # opened bodies in order, not parsed yet
        self._kept: dict[int, bytes] = {}  # sealed datagrams from `low` on: at most twice a window
        self.low = 0
        self._rtt_s = 0.0
        self._unacknowledged = 0
        self._ack_at: float | None = None
        self._echo = 0
        self._nak_at: float | None = None
        self._nak_next = 0  # what was missing first when we last asked
        self._naks_in_vain = 0
        self._join_s = 0.0
        self._join_at: float | None = None
        self.begin(now)

    # -- beginning and ending ------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Ask for a beginning; also after the stream was lost."""
        self._voice.joins += 1
        self.join = self._voice.joins
        self.state = StreamState.JOINING
        self._join_at = now
        self._join_s = self._settings.repeat_s

    def started(self, start: Start, now: float) -> bool:
        """Whether that began it."""
        if start.join != self.join or self.state is StreamState.LOST:
            return False
        self._ack_at, self._echo = now, start.stamp
        if self.state is StreamState.OPEN:
            return False  # told again: only our acknowledgement got lost
        self.state = StreamState.OPEN
        self.next = self.end = self.low = self.start = start.sequence
        self.number = start.number
        self._join_at = None
        return True

    def lose(self) -> None:
        self.state = StreamState.LOST
        self._ahead.clear()
        self._ready.clear()
        self._kept.clear()
        self._parser = RecordParser(message_bytes_max=self._settings.message_bytes_max)
        self._unacknowledged = self._naks_in_vain = 0
        self._ack_at = self._nak_at = self._join_at = None

    def freeze(self) -> None:
        """The sender is gone. What lies beyond a gap may be what no other receiver will ever have: it goes."""
        self._ahead.clear()
        self._ack_at = self._nak_at = self._join_at = None
        self._naks_in_vain = 0

    # -- what arrives ----------------------------------------------------------------------------------------

    def take(self, sequence: int, lag: int, datagram: bytes, end: int | None = None) -> str:
        """One Data datagram; what for it was dropped, or nothing. `end`: where the stream is known to stop."""
        following = self.next
        if self.state is not StreamState.OPEN:
            return "early"
        if sequence < following or sequence in self._ahead:
            return "duplicate"
        if sequence >= following + self._settings.window_datagrams or (end is not None and sequence >= end):
            return "beyond"
        body = self.box.open(DATA, sequence, datagram[HEADER_BYTES:], datagram[:HEADER_BYTES])
        if body is None:
            return "forged"
        self._kept[sequence] = datagram
        if sequence - lag > self.low:
            self._forget_below(sequence - lag)
        if sequence >= self.end:
            self.end = sequence + 1
        if sequence != following:
            self._ahead[sequence] = body
            return ""
        ready, ahead = self._ready, self._ahead
        ready.append(body)
        following += 1
        while ahead and (waiting := ahead.pop(following, None)) is not None:
            ready.append(waiting)
            following += 1
        self._unacknowledged += following - self.next
        self.next = following
        return ""

    def messages(self) -> list[bytes] | None:
        """Those that are whole now, in order; None: the sender's stream makes no sense."""
        if not self._ready:
            return []
        ready, self._ready = self._ready, []
        messages = self._parser.feed(ready)
        if messages is not None:
            self.number += len(messages)
        return messages

    def heard(self, heartbeat: Heartbeat, now: float) -> None:
        if self.state is StreamState.JOINING and self._join_at is not None:
            self._join_at = min(self._join_at, now + self._settings.repeat_s)  # it is there: ask it
        if self.state is not StreamState.OPEN:
            return
        self.end = max(self.end, heartbeat.next)
        self._rtt_s = heartbeat.rtt_us / 1e6
        self._forget_below(heartbeat.floor)
        self._ack_at, self._echo = now, heartbeat.stamp

    def pause(self, paused: bool, now: float) -> None:
        if paused is not self.paused:
            self.paused = paused
            if self.state is StreamState.OPEN:
                self._ack_at = now

    def _forget_below(self, floor: int) -> None:
        """Everyone has what is below; and what is more than a window below what we have was never missed by anyone."""
        floor = min(max(floor, self.next - self._settings.window_datagrams), self.next)
        kept = self._kept
        if floor - self.low > len(kept):
            for sequence in [s for s in kept if s < floor]:
                del kept[sequence]
            self.low = max(self.low, floor)
        while self.low < floor:
            kept.pop(self.low, None)
            self.low += 1

    # -- what we say -----------------------------------------------------------------------------------------

    def speak(self, now: float) -> list[bytes]:
        """What is due to the sender; to be called after anything that happened, and when `deadline` says so."""
        said = []
        if self.state is StreamState.OPEN:
            nak = self.nak(now, self.end)
            if nak is not None:
                said.append(nak)
            if self._unacknowledged >= self._settings.ack_every_datagrams:
                self._ack_at = now
            elif self._unacknowledged and self._ack_at is None:
                self._ack_at = now + self._settings.ack_after_s
            if self._ack_at is not None and now >= self._ack_at:
                said.append(self._ack())
        elif self._join_at is not None and now >= self._join_at:
            self._join_at = now + self._join_s
            self._join_s = min(self._join_s * 2, self._settings.repeat_s_max)
            said.append(self._voice.say(Join(self.sender, self.join)))
        return said

    def _ack(self) -> bytes:
        window = 0 if self.paused else self._settings.window_datagrams
        echo, self._echo = self._echo, 0
        self._unacknowledged, self._ack_at = 0, None
        return self._voice.say(Ack(self.sender, self.join, self.next, window, echo))

    def nak(self, now: float, end: int) -> bytes | None:
        """The question for what is missing below `end`, if it is due."""
        if self.next >= end:
            self._nak_at = None
            self._naks_in_vain = 0
            return None
        if self._nak_at is None:
            self._nak_at = now + self._backoff()
        if now < self._nak_at:
            return None
        in_vain = self.next == self._nak_next
        self._naks_in_vain = min(self._naks_in_vain + 1, 16) if in_vain else 0
        self._nak_next = self.next
        self._nak_at = now + self._backoff()
        return self._voice.say(Nak(self.sender, self.next, bits_of(self._missing(end), self.next)))

    def _missing(self, end: int) -> list[int]:
        bits_max = (self._settings.datagram_bytes_max - OVERHEAD_BYTES - NAK_BODY_BYTES) * 8
        end = min(end, self.next + min(self._settings.window_datagrams, bits_max))
        return [s for s in range(self.next, end) if s not in self._ahead]

    def _backoff(self) -> float:
        """Between 0.5 and 1.5 round trips, doubled each time in vain: who lacks the same does not ask all at once."""
        settings = self._settings
        base = max(settings.nak_backoff_s_min, self._rtt_s) * (0.5 + self._jitter())
        return min(base * 2.0**self._naks_in_vain, settings.nak_backoff_s_max * (0.5 + self._jitter()))

    def deadline(self) -> float | None:
        due = [at for at in (self._ack_at, self._nak_at, self._join_at) if at is not None]
        return min(due) if due else None

    # -- for other receivers -----------------------------------------------------------------------------------

    def held(self) -> tuple[int, int]:
        """Datagrams that wait for an earlier one, and that are kept for others."""
        return len(self._ahead), len(self._kept)

    def kept(self, sequences: list[int], count_max: int) -> list[bytes]:
        found = (self._kept[s] for s in sequences if s in self._kept)
        return list(islice(found, count_max))
