"""The bus of one node: all its channels, behind one machine.

Whatever arrives is judged before it is believed: length, version, cluster, kind, channel, membership of its sender,
whether it is new, and at last its seal. What fails is dropped and counted by the reason; no bytes make an exception.

    own        our own multicast, come back           forged     wrong key, changed on the way
    short      no whole datagram                      malformed  genuine, but no body of its kind
    version    another protocol, or nonsense          duplicate  data that we have
    cluster    another cluster                        beyond     data further ahead than we have room for
    kind       of no kind we know                     early      data of a stream that is not open here
    channel    of no channel of this node             replayed   control that we have heard
    stranger   its sender is not in the view
"""
from collections.abc import Callable, Sequence
from math import inf
from typing import assert_never

from angarium.core.bus.channel import Channel
from angarium.core.bus.counters import BusCounters
from angarium.core.bus.datagram import (
    CHANGING_HEADER,
    HEADER,
    HEADER_BYTES,
    INCARNATION_BYTES,
    OVERHEAD_BYTES,
    STREAM_HEADER,
    STREAM_HEADER_BYTES,
    VERSION,
    Header,
    Kind,
)
from angarium.core.bus.events import (
    BusSettings,
    Command,
    DatagramsReceived,
    Event,
    MembersChanged,
    NeighbourFound,
    NeighbourLost,
    ReachChanged,
    ReceiverPaused,
    Rejoin,
    ReportReceived,
    Send,
    Tick,
)
from angarium.core.bus.reach import PROBE_CHANNEL, Reach
from angarium.core.bus.receiving import ReceiveStream
from angarium.core.bus.routes import Routes
from angarium.core.bus.seal import Boxes
from angarium.core.bus.sending import lengths_of
from angarium.core.bus.voice import Voice
from angarium.core.errors import LocalProtocolError

_VIEW_MAX = 0xFFFFFFFF
_KINDS = frozenset(Kind) - {Kind.PROBE}  # probes are for `reach.py`


class BusMachine:
    def __init__(
        self, *, cluster: int, incarnation: bytes, boxes: Boxes, jitter: Callable[[], float],
        settings: BusSettings | None = None, links: tuple[int, ...] = (0,),
    ) -> None:  # fmt: skip
        """`jitter` draws from [0, 1): back-offs of nodes that lack the same must differ. `links`: those there are;
        what is to be sent on any other is carried."""
        self._settings = settings or BusSettings()
        self._cluster = cluster
        self._incarnation = incarnation
        self._boxes = boxes
        self._jitter = jitter
        self.counters = BusCounters()
        self._routes = Routes(self.counters, links)
        self._voices: dict[int, Voice] = {}  # of every channel that ever was: at most channels_max
        self._reach = Reach(self._settings, self._new_voice(PROBE_CHANNEL), boxes, self._routes, links)
        self.channels: dict[int, Channel] = {}
        self._flows: dict[bytes, tuple[Channel, ReceiveStream]] = {}  # by the constant part of its data's header
        self._due = inf

    def number_next(self, channel: int) -> int:
        """The number that the next message sent on that channel will have."""
        voice = self._voices.get(channel)
        return voice.number_next if voice is not None else 1

    def is_reached(self, node: bytes, link: int) -> bool:
        """As far as is known, multicast on that link reaches the node."""
        return self._routes.is_reached(node, link)

    def check_send(self, channel: int, lengths: Sequence[int], gathered_bytes: int = 0) -> int:
        """Raises what `Send` would raise for messages of that length; see `SendStream.check`."""
        sending = self._channel(channel).sending
        if sending is None:
            raise LocalProtocolError(f"channel {channel}: this node is none of its senders")
        return sending.check(lengths, gathered_bytes)

    def deadline(self) -> float | None:
        probe_at = self._reach.deadline()
        due = self._due if probe_at is None else min(self._due, probe_at)
        return None if due == inf else due

    def _new_voice(self, channel: int) -> Voice:
        box = self._boxes.box(self._incarnation, channel)
        return Voice(channel=channel, cluster=self._cluster, incarnation=self._incarnation, box=box)

    def handle(self, event: Event, *, now: float) -> list[Command]:
        match event:
            case DatagramsReceived():
                return self._received(event, now)
            case Send(channel, messages):
                lengths = lengths_of(messages)
                self.check_send(channel, lengths)
                return self._noted(channel, self._channel(channel).send(messages, lengths, now))
            case MembersChanged():
                return self._changed(event, now)
            case ReceiverPaused(channel, paused):
                return self._noted(channel, self._channel(channel).pause(paused, now))
            case Rejoin(channel, sender):
                return self._noted(channel, self._channel(channel).rejoin(sender, now))
            case ReachChanged(node, link, reached):
                self._routes.change(node, link, reached)
                return []
            case NeighbourFound(node):
                return self._reach.found(node, now)
            case NeighbourLost(node):
                self._reach.lost(node)
                return []
            case ReportReceived(node, heard):
                self._reach.reported(node, heard)
                return []
            case Tick():
                return self._tick(now)
        assert_never(event)

    def _channel(self, number: int) -> Channel:
        channel = self.channels.get(number)
        if channel is None:
            raise LocalProtocolError(f"channel {number} is not open on this node")
        return channel

    def _noted(self, channel: int, commands: list[Command]) -> list[Command]:
        self._due = min(self._due, self.channels[channel].due)
        return commands

    def _tick(self, now: float) -> list[Command]:
        commands = self._reach.tick(now)
        for channel in self.channels.values():
            if channel.due <= now:
                commands += channel.step(now)
        self._due = min((channel.due for channel in self.channels.values()), default=inf)
        return commands

    def _changed(self, event: MembersChanged, now: float) -> list[Command]:
        number, settings = event.channel, self._settings
        self._check_members(event)
        voice = self._voices.get(number)
        if voice is None:
            if len(self._voices) == settings.channels_max:
                raise LocalProtocolError(f"channel {number}: the node has had channels_max {settings.channels_max:,}")
            voice = self._voices[number] = self._new_voice(number)
        if event.view <= voice.view:
            return []
        channel = self.channels.get(number)
        if channel is None:
            channel = Channel(settings, voice, self._boxes, self._routes, self.counters, self._jitter)
            self.channels[number] = channel
        commands = channel.change(event, now)
        self._noted(number, commands)
        if not event.senders and not event.receivers:
            del self.channels[number]
        self._flows = {key: flow for key, flow in self._flows.items() if flow[0] is not channel}
        for sender, stream in channel.streams.items():
            key = STREAM_HEADER.pack(VERSION, Kind.DATA, 0, number, self._cluster, sender)
            self._flows[key] = (channel, stream)
        return commands

    def _check_members(self, event: MembersChanged) -> None:
        number, members = event.channel, max(len(event.senders), len(event.receivers))
        if not 0 <= number < PROBE_CHANNEL:
            raise LocalProtocolError(f"channel {number} is outside 0..{PROBE_CHANNEL - 1}")
        if not 0 < event.view <= _VIEW_MAX:
            raise LocalProtocolError(f"channel {number}: view {event.view} is outside 1..{_VIEW_MAX}")
        if members > self._settings.members_max:
            reason = f"{members:,} members exceed members_max {self._settings.members_max:,}"
            raise LocalProtocolError(f"channel {number}: {reason}")
        if any(len(member) != INCARNATION_BYTES for member in event.senders + event.receivers):
            raise LocalProtocolError(f"channel {number}: an incarnation that has not {INCARNATION_BYTES} bytes")

    def _received(self, event: DatagramsReceived, now: float) -> list[Command]:
        counters, flows, changing = self.counters, self._flows, CHANGING_HEADER.unpack_from
        commands: list[Command] = []
        touched: dict[int, Channel] = {}
        counters.received_datagrams += len(event.datagrams)
        counters.received_bytes += sum(map(len, event.datagrams))
        for datagram in event.datagrams:
            # The first part of the header is the same for all data of a stream: one look tells that it is all right.
            flow = flows.get(datagram[:STREAM_HEADER_BYTES])
            if flow is not None and len(datagram) >= OVERHEAD_BYTES:
                channel, stream = flow
                sequence, _, length, lag = changing(datagram, STREAM_HEADER_BYTES)
                reason = stream.take(sequence, lag, datagram) if length == len(datagram) - HEADER_BYTES else "short"
                channel.touched[stream] = None
                touched[channel.number] = channel
            else:
                reason, followed = self._judge(datagram, touched, now)
                commands += followed
            if reason:
                counters.drop(reason)
        for number, channel in touched.items():
            commands += self._noted(number, channel.step(now))
        return commands

    def _judge(self, datagram: bytes, touched: dict[int, Channel], now: float) -> tuple[str, list[Command]]:
        """Anything but data of a stream that is open here: what for it is dropped, or nothing; and what follows."""
        if len(datagram) < OVERHEAD_BYTES:
            return "short", []
        header = Header(*HEADER.unpack_from(datagram))
        if header.version != VERSION or header.flags:
            return "version", []
        if header.cluster != self._cluster:
            return "cluster", []
        if header.length != len(datagram) - HEADER_BYTES:
            return "short", []
        if header.incarnation == self._incarnation:
            return "own", []
        if header.channel == PROBE_CHANNEL:
            return self._reach.hear(header, datagram, now)
        if header.kind not in _KINDS:
            return "kind", []
        channel = self.channels.get(header.channel)
        if channel is None:
            return "channel", []
        touched[header.channel] = channel
        if header.kind == Kind.DATA:
            return channel.take(header.incarnation, header.sequence, header.lag, datagram), []
        return channel.hear(header, datagram, now)
