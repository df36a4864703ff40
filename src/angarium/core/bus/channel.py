"""One channel at one node: its own stream if it sends, the streams of the others if it receives.

The node's parts are stepped only when something happened to them, or when they are due (`due`): a channel may have
hundreds of quiet senders.
"""
from collections.abc import Callable, Sequence
from math import inf

from angarium.core.bus.closing import FORWARDED_MAX, Closing
from angarium.core.bus.counters import BusCounters
from angarium.core.bus.datagram import (
    HEADER_BYTES,
    Ack,
    Evict,
    Have,
    Header,
    Heartbeat,
    Join,
    Kind,
    Nak,
    Start,
    decode_body,
    sequences_of,
)
from angarium.core.bus.events import (
    BusSettings,
    ChannelBlocked,
    ChannelUnblocked,
    Command,
    Delivered,
    Evicted,
    MembersChanged,
    Message,
    StreamEnded,
    StreamLost,
    StreamStarted,
)
from angarium.core.bus.receiving import ReceiveStream, StreamState
from angarium.core.bus.routes import Routes
from angarium.core.bus.seal import CONTROL, Box, Boxes
from angarium.core.bus.sending import SendStream
from angarium.core.bus.voice import Seen, Voice

_FROM_SENDERS = frozenset({Kind.HEARTBEAT, Kind.START, Kind.EVICT})


class _Peer:
    """Another member, as far as what it says outside its stream is concerned."""

    __slots__ = ("box", "seen")

    def __init__(self, box: Box) -> None:
        self.box = box
        self.seen = Seen()


class Channel:
    def __init__(
        self, settings: BusSettings, voice: Voice, boxes: Boxes, routes: Routes, counters: BusCounters,
        jitter: Callable[[], float],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._voice = voice
        self._boxes = boxes
        self._routes = routes
        self._counters = counters
        self._jitter = jitter
        self._link = 0
        self._me = voice.incarnation
        self._senders: frozenset[bytes] = frozenset()
        self._receivers: tuple[bytes, ...] = ()
        self._peers: dict[bytes, _Peer] = {}  # members we have heard
        self._paused = False
        self.number = voice.channel
        self.view = 0
        self.sending: SendStream | None = None
        self.streams: dict[bytes, ReceiveStream] = {}
        self.closings: dict[bytes, Closing] = {}
        self.touched: dict[ReceiveStream, None] = {}  # with something new since the last `step`
        self.due = inf

    # -- who is here -----------------------------------------------------------------------------------------

    def change(self, event: MembersChanged, now: float) -> list[Command]:
        """After it the view is the event's. Ends with `step`."""
        self.view = self._voice.view = event.view
        self._link = event.link
        self._senders, self._receivers = frozenset(event.senders), event.receivers
        members = self._senders | set(event.receivers)
        self._peers = {incarnation: peer for incarnation, peer in self._peers.items() if incarnation in members}
        commands: list[Command] = []
        if self._me not in self._senders:
            if self.sending is not None and self.sending.blocked:
                commands.append(ChannelUnblocked(self.number))  # nobody need wait: sending fails, and says why
            self.sending = None
        else:
            if self.sending is None:
                self.sending = SendStream(self._settings, self._voice, now)
            self.sending.change(tuple(r for r in event.receivers if r != self._me), now)
        commands += self._change_streams(event, now)
        self.due = now
        return commands + self.step(now)

    def _change_streams(self, event: MembersChanged, now: float) -> list[Command]:
        commands: list[Command] = []
        receiving = self._me in event.receivers
        for sender, stream in list(self.streams.items()):
            if not receiving:
                commands += self._lose(stream, "this node is no receiver any more")
            if not receiving or sender not in self._senders:
                del self.streams[sender]
                self.touched.pop(stream, None)
                if stream.state is StreamState.OPEN:
                    self.closings[sender] = Closing(self._settings, self._voice, stream, now)
        if not receiving:
            for closing in self.closings.values():
                if not closing.told:
                    commands += self._lose(closing.stream, "this node is no receiver any more")
            self.closings.clear()
            return commands
        while len(self.closings) > self._settings.members_max:  # nobody agrees with us on any of them
            oldest = self.closings.pop(next(iter(self.closings)))
            commands += [] if oldest.told else self._lose(oldest.stream, "too many senders have gone at once")
        for closing in self.closings.values():
            closing.change(event.receivers, now)
        for sender in event.senders:
            if sender != self._me and sender not in self.streams:
                ended = self.closings.pop(sender, None)
                if ended is not None and not ended.told:
                    commands += self._lose(ended.stream, "its sender left the view and came back")
                box = self._peer(sender).box
                stream = ReceiveStream(self._settings, self._voice, sender, box, self._jitter, now)
                stream.pause(self._paused, now)
                self.streams[sender] = stream
        return commands

    def _peer(self, incarnation: bytes) -> _Peer:
        peer = self._peers.get(incarnation)
        if peer is None:
            peer = self._peers[incarnation] = _Peer(self._boxes.box(incarnation, self._voice.channel))
        return peer

    def pause(self, paused: bool, now: float) -> list[Command]:
        self._paused = paused
        for stream in self.streams.values():
            stream.pause(paused, now)
            self.touched[stream] = None
        return self.step(now)

    def rejoin(self, sender: bytes, now: float) -> list[Command]:
        stream = self.streams.get(sender)
        if stream is not None and stream.state is StreamState.LOST:
            stream.begin(now)
            self.touched[stream] = None
        return self.step(now)

    # -- what this node sends ----------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message], lengths: Sequence[int], now: float) -> list[Command]:
        """`sending` has to be there, and to have checked them."""
        assert self.sending is not None
        number = self._voice.number_next
        self.sending.submit(messages, lengths)
        if not self._receivers:
            self._counters.unheard_messages += len(messages)
        commands: list[Command] = []
        if self._me in self._receivers:
            commands += self._deliver(self._me, number, [b"".join(message) for message in messages])
        return commands + self._step_sending(now)

    # -- what arrives ------------------------------------------------------------------------------------------

    def take(self, sender: bytes, sequence: int, lag: int, datagram: bytes) -> str:
        """Data of a stream that is not open; what for it was dropped, or nothing. To be followed by `step`."""
        closing = self.closings.get(sender)
        if closing is None:
            return "stranger"
        target = closing.target
        return "early" if target is None else closing.stream.take(sequence, lag, datagram, end=target)

    def hear(self, header: Header, datagram: bytes, now: float) -> tuple[str, list[Command]]:
        """Any other datagram: what for it was dropped, or nothing; and what follows. To be followed by `step`."""
        who = header.incarnation
        if who not in (self._senders if header.kind in _FROM_SENDERS else self._receivers):
            return "stranger", []
        peer = self._peer(who)
        if not peer.seen.is_new(header.sequence):
            return "replayed", []
        plain = peer.box.open(CONTROL, header.sequence, datagram[HEADER_BYTES:], datagram[:HEADER_BYTES])
        body = None if plain is None else decode_body(header.kind, plain)
        if body is None:
            return ("forged" if plain is None else "malformed"), []
        peer.seen.note(header.sequence)
        if isinstance(body, Have):
            return "", self._heard_have(who, body, header.view, now)
        if isinstance(body, Ack | Nak | Join):
            if body.stream != self._me:
                return "", self._forward(who, body)
            if isinstance(body, Join) and header.view > self.view:
                return "", []  # it will ask again when we know that view, too: it may have been out in between
            return "", self._heard_receiver(who, body, header.sequence, now)
        return "", self._heard_sender(who, body, now)

    def _heard_receiver(self, who: bytes, body: Ack | Nak | Join, counter: int, now: float) -> list[Command]:
        sending = self.sending
        if sending is None:
            return []
        answer = None
        if isinstance(body, Join):
            answer = sending.joined(who, body, now)
        elif isinstance(body, Ack):
            answer = sending.refusal(who, body.join)
            sending.acknowledged(who, body, counter, now)
        else:
            self._counters.naks_received += 1
            sending.asked(who, body, now)
        return [self._routes.to_one(who, [answer])] if answer is not None else []

    def _heard_sender(self, who: bytes, body: object, now: float) -> list[Command]:
        stream = self.streams.get(who)
        if stream is None:
            return []
        self.touched[stream] = None
        if isinstance(body, Heartbeat):
            stream.heard(body, now)
        elif isinstance(body, Start):
            if body.receiver == self._me and stream.started(body, now):
                return [StreamStarted(self._voice.channel, who, stream.number)]
        elif (
            isinstance(body, Evict) and body.receiver == self._me and body.join == stream.join
            and stream.state is StreamState.OPEN
        ):  # fmt: skip
            return self._lose(stream, "its sender went on without this node, which held up others")
        return []

    def _heard_have(self, who: bytes, have: Have, view: int, now: float) -> list[Command]:
        if view != self.view:
            return []  # it will say so again, in the same view as we
        closing = self.closings.get(have.stream)
        if closing is not None:
            answer = closing.heard(who, have, now)
        elif have.wanted and have.stream not in self._senders:
            answer = self._voice.say(Have(have.stream, 0, 0, 0, 0))
        else:
            answer = None
        return [self._routes.to_one(who, [answer])] if answer is not None else []

    def _forward(self, who: bytes, body: Ack | Nak | Join) -> list[Command]:
        """Somebody lacks what a dead sender can no longer repair."""
        closing = self.closings.get(body.stream)
        if closing is None or not isinstance(body, Nak):
            return []
        datagrams = closing.stream.kept(sequences_of(body), FORWARDED_MAX)
        if not datagrams:
            return []
        self._count_repairs(datagrams)
        return [self._routes.to_one(who, datagrams)]

    # -- what follows ------------------------------------------------------------------------------------------

    def step(self, now: float) -> list[Command]:
        """Deliver what is complete and say what is due. To be called after anything above, and when `due`."""
        everything = now >= self.due
        streams = list(self.streams.values()) if everything else list(self.touched)
        self.touched.clear()
        due = inf if everything else self.due
        commands: list[Command] = []
        for stream in streams:
            commands += self._step_stream(stream, now)
            due = min(due, _or_never(stream.deadline()))
        for closing in list(self.closings.values()):
            commands += self._step_closing(closing, now)
            due = min(due, closing.deadline() if closing.stream.sender in self.closings else inf)
        self.due = due
        return commands + self._step_sending(now)

    def _step_stream(self, stream: ReceiveStream, now: float) -> list[Command]:
        commands = self._deliver_ready(stream)
        said = stream.speak(now)
        if said:
            self._count_naks(said)
            commands.append(self._routes.to_one(stream.sender, said))
        return commands

    def _step_closing(self, closing: Closing, now: float) -> list[Command]:
        stream, channel = closing.stream, self._voice.channel
        commands = self._deliver_ready(stream)
        if stream.state is not StreamState.OPEN or closing.is_hopeless():
            del self.closings[stream.sender]
            return commands + self._lose(stream, "its sender had gone on without this node before it left")
        if closing.is_complete() and not closing.told:
            closing.told = True
            commands.append(StreamEnded(channel, stream.sender, stream.number))
        if closing.is_done():
            del self.closings[stream.sender]
        for who, datagram in closing.speak(now):
            self._count_naks([datagram])
            commands.append(self._routes.to_one(who, [datagram]))
        return commands

    def _step_sending(self, now: float) -> list[Command]:
        sending, channel = self.sending, self._voice.channel
        if sending is None:
            return []
        commands: list[Command] = []
        for receiver in sending.evict(now):
            self._counters.evictions += 1
            commands.append(Evicted(channel, receiver))
            told = sending.refusal(receiver, sending.evicted[receiver])
            if told is not None:
                commands.append(self._routes.to_one(receiver, [told]))
        for_all, for_one = sending.repair(now)
        if for_all:
            self._count_repairs(for_all)
            commands += self._routes.to_all(self._link, sending.receivers, for_all)
        for receiver, datagrams in for_one.items():
            self._count_repairs(datagrams)
            commands.append(self._routes.to_one(receiver, datagrams))
        data = sending.pump(now)
        if data:
            self._counters.data_datagrams += len(data)
            self._counters.data_bytes += sum(map(len, data))
        heartbeat = sending.heartbeat(now)
        if heartbeat is not None:
            data.append(heartbeat)
        if data:
            commands += self._routes.to_all(self._link, sending.receivers, data)
        if sending.update_blocked():
            commands.append(ChannelBlocked(channel) if sending.blocked else ChannelUnblocked(channel))
        self.due = min(self.due, _or_never(sending.deadline()))
        return commands

    def _deliver_ready(self, stream: ReceiveStream) -> list[Command]:
        number = stream.number
        messages = stream.messages()
        if messages is None:
            return self._lose(stream, "its sender sent what is no message")
        return self._deliver(stream.sender, number, messages) if messages else []

    def _deliver(self, sender: bytes, number: int, messages: list[bytes]) -> list[Command]:
        self._counters.delivered_messages += len(messages)
        self._counters.delivered_bytes += sum(map(len, messages))
        return [Delivered(self._voice.channel, sender, number, messages)]

    def _lose(self, stream: ReceiveStream, reason: str) -> list[Command]:
        was_open = stream.state is StreamState.OPEN
        stream.lose()
        if not was_open:
            return []
        self._counters.streams_lost += 1
        return [StreamLost(self._voice.channel, stream.sender, stream.number, reason)]

    def _count_repairs(self, datagrams: list[bytes]) -> None:
        self._counters.repair_datagrams += len(datagrams)
        self._counters.repair_bytes += sum(map(len, datagrams))

    def _count_naks(self, said: list[bytes]) -> None:
        self._counters.naks_sent += sum(datagram[1] == Kind.NAK for datagram in said)


def _or_never(at: float | None) -> float:
    return inf if at is None else at
