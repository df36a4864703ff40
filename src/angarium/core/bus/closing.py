"""How the receivers of a stream end it alike when its sender has left the view.

Each freezes the stream and tells the others how far it got (`Have`), until it has heard all of them in this view. The
highest of these is where the stream ends: whatever one of them may have delivered, all will deliver, and nothing
beyond. Who lacks something asks the first in the view's order among those that have all of it; the dead sender's own
datagrams are forwarded, sealed as they were. Nobody sends what was not asked for.

One that reported all of it, and heard the same from all others, is done and forgets the stream; asked later it says
that it has no part in it, which is as good: whoever asks has reported all of it as well. A further change of the view
begins the exchange anew.
"""
from angarium.core.bus.datagram import Have
from angarium.core.bus.events import BusSettings
from angarium.core.bus.receiving import ReceiveStream
from angarium.core.bus.voice import Voice

FORWARDED_MAX = 64  # datagrams for each question: the back-off of who asks keeps the pace


class Closing:
    def __init__(self, settings: BusSettings, voice: Voice, stream: ReceiveStream, now: float) -> None:
        self._settings = settings
        self._voice = voice
        self.stream = stream
        stream.freeze()
        self._others: dict[bytes, Have | None] = {}  # in the view's order; None: not heard in this view
        self._repeat_at = now
        self._repeat_s = 0.0
        self.told = False  # the end is known here, and was told

    def change(self, receivers: tuple[bytes, ...], now: float) -> None:
        """A new view: everyone says it again."""
        me = self._voice.incarnation
        self._others = {receiver: None for receiver in receivers if receiver != me}
        self._repeat_at = now
        self._repeat_s = self._settings.repeat_s

    def heard(self, who: bytes, have: Have, now: float) -> bytes | None:
        """What another has; and the answer to it, if it wants one."""
        if who not in self._others:
            return None
        self._others[who] = have
        if have.wanted and not self.is_done():
            return self._have(wanted=0)
        return None

    @property
    def target(self) -> int | None:
        """The first sequence that no survivor got; None: not known yet. Who was to begin further on got nothing."""
        highest = self.stream.next if self.stream.next > self.stream.start else 0
        for have in self._others.values():
            if have is None:
                return None
            if have.got:
                highest = max(highest, have.next)
        return highest

    def is_complete(self) -> bool:
        target = self.target
        return target is not None and self.stream.next >= target

    def is_done(self) -> bool:
        target = self.target
        if target is None or self.stream.next < target:
            return False
        return all(have is not None and (not have.next or have.next >= target) for have in self._others.values())

    def is_hopeless(self) -> bool:
        """The others have what they have because the sender had gone on without us."""
        forwarder = self._forwarder()
        have = self._others[forwarder] if forwarder is not None else None
        return have is not None and have.low > self.stream.next

    def _forwarder(self) -> bytes | None:
        target = self.target
        if target is None or self.stream.next >= target:
            return None
        return next(who for who, have in self._others.items() if have is not None and have.got and have.next == target)

    def speak(self, now: float) -> list[tuple[bytes, bytes]]:
        """What is due, and to whom."""
        said = []
        forwarder = self._forwarder()
        if forwarder is not None:
            target = self.target
            assert target is not None
            question = self.stream.nak(now, target)
            if question is not None:
                said.append((forwarder, question))
        if now >= self._repeat_at and not self.is_done():
            self._repeat_at = now + self._repeat_s
            self._repeat_s = min(self._repeat_s * 2, self._settings.repeat_s_max)
            target = self.target
            for who, have in self._others.items():
                if have is None or target is None or (have.next and have.next < target):
                    said.append((who, self._have(wanted=1)))
        return said

    def _have(self, wanted: int) -> bytes:
        stream = self.stream
        return self._voice.say(Have(stream.sender, stream.next, stream.low, stream.next > stream.start, wanted))

    def deadline(self) -> float:
        asking = self.stream.deadline() if self._forwarder() is not None else None
        return self._repeat_at if asking is None else min(asking, self._repeat_at)
