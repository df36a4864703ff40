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
from angarium.core.bus.datagram import HEADER, HEADER_BYTES, OVERHEAD_BYTES, VERSION, Header, Kind
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
from angarium.core.bus.routes import Routes
from angarium.core.bus.seal import Boxes
from angarium.core.bus.voice import Voice
from angarium.core.errors import LocalProtocolError

_KINDS = frozenset(Kind) - {Kind.PROBE}  # probes are for `reach.py`


class BusMachine:
    def __init__(
        self, *, cluster: int, incarnation: bytes, boxes: Boxes, jitter: Callable[[], float],
        settings: BusSettings | None = None, links: tuple[int, ...] = (0,),
    ) -> None:  # fmt: skip
        """`jitter` draws from [0, 1): back-offs of nodes that lack the same must differ. `links`: to be probed."""
        self._settings = settings or BusSettings()
        self._cluster = cluster
        self._incarnation = incarnation
        self._boxes = boxes
        self._jitter = jitter
        self.counters = BusCounters()
        self._routes = Routes(self.counters)
        self._voices: dict[int, Voice] = {}  # of every channel that ever was: at most channels_max
        self._reach = Reach(self._settings, self._new_voice(PROBE_CHANNEL), boxes, self._routes, links)
        self.channels: dict[int, Channel] = {}
        self._due = inf

    def number_next(self, channel: int) -> int:
        """The number that the next message sent on that channel will have."""
        voice = self._voices.get(channel)
        return voice.number_next if voice is not None else 1

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
                self.check_send(channel, [sum(map(len, message)) for message in messages])
                return self._noted(channel, self._channel(channel).send(messages, now))
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
        if not 0 <= number < PROBE_CHANNEL:
            raise LocalProtocolError(f"channel {number} is outside 0..{PROBE_CHANNEL - 1}")
        members = max(len(event.senders), len(event.receivers))
        if members > settings.members_max:
            reason = f"{members:,} members exceed members_max {settings.members_max:,}"
            raise LocalProtocolError(f"channel {number}: {reason}")
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
        return commands

    def _received(self, event: DatagramsReceived, now: float) -> list[Command]:
        counters, channels, unpack = self.counters, self.channels, HEADER.unpack_from
        commands: list[Command] = []
        touched: dict[int, Channel] = {}
        counters.received_datagrams += len(event.datagrams)
        for datagram in event.datagrams:
            size = len(datagram)
            counters.received_bytes += size
            if size < OVERHEAD_BYTES:
                counters.drop("short")
                continue
            fields = unpack(datagram)
            version, kind, flags, number, cluster, sender, sequence, _, length, lag = fields
            channel = channels.get(number)
            if (
                sender == self._incarnation or version != VERSION or flags or cluster != self._cluster
                or channel is None or kind not in _KINDS or length != size - HEADER_BYTES
            ):  # fmt: skip
                reason, followed = self._judge(Header(*fields), datagram, now)
                commands += followed
                if reason:
                    counters.drop(reason)
                continue
            touched[number] = channel
            if kind == Kind.DATA:
                reason = channel.take(sender, sequence, lag, datagram)
            else:
                reason, followed = channel.hear(Header(*fields), datagram, now)
                commands += followed
            if reason:
                counters.drop(reason)
        for number, channel in touched.items():
            commands += self._noted(number, channel.step(now))
        return commands

    def _judge(self, header: Header, datagram: bytes, now: float) -> tuple[str, list[Command]]:
        """What no channel takes: a probe, or what for it is dropped."""
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
        return ("kind" if header.kind not in _KINDS else "channel"), []
