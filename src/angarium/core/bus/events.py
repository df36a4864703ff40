"""What the bus machine of a node is told, what it asks for, and its settings.

A **channel** is a set of senders and a set of receivers, both named by incarnation. Each sender has one stream on it:
messages numbered 1, 2, 3, …, which every receiver gets whole, in order and once, from the number it was told in
`StreamStarted` to the one it is told in `StreamLost` or `StreamEnded`. Streams of different senders have no order among
each other. Who sends and who receives is decided elsewhere (`MembersChanged`).

A **link** is a number that the driver gives to one multicast group on one interface: a bus. A node may have several;
a channel sends on one of them, and listens on all.

Events and commands are batches: an object for each loop turn, never for each message.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from angarium.core.errors import ConfigError

Part = bytes | bytearray | memoryview
Message = Sequence[Part]  # sent as if joined; what arrives is one `bytes`

# -- events ----------------------------------------------------------------------------------------


class MembersChanged(msgspec.Struct, frozen=True):
    """The members of a channel in a view; also how a channel is opened. Both empty: it is closed.

    Views of a channel ascend; an older one than the current is ignored. All nodes have to be told the same members for
    the same view, with `receivers` in the same order. Incarnations are 16 bytes, new at every start of a node.
    """

    channel: int
    view: int
    senders: tuple[bytes, ...]
    receivers: tuple[bytes, ...]
    link: int = 0  # on which this node sends; one that it does not have: everything is carried over TCP


class Send(msgspec.Struct, frozen=True):
    """Messages for all receivers; numbered from `BusMachine.number_next(channel)`, told before the event."""

    channel: int
    messages: Sequence[Message]


class DatagramsReceived(msgspec.Struct, frozen=True):
    """From anywhere: who sent one is inside it, and proven."""

    datagrams: Sequence[bytes]


class ReceiverPaused(msgspec.Struct, frozen=True):
    """This node can take no more of the channel for now (or can again): senders stop once what they sent is taken."""

    channel: int
    paused: bool


class Rejoin(msgspec.Struct, frozen=True):
    """After `StreamLost`: have the sender's stream again, from its next message on."""

    channel: int
    sender: bytes


class ReachChanged(msgspec.Struct, frozen=True):
    """Datagrams on `link` reach that node, or do not: then they are carried (`Carry`). Link -1: its unicast port."""

    node: bytes
    link: int
    reached: bool


class NeighbourFound(msgspec.Struct, frozen=True):
    """There is a TCP link to that node: what multicast does not bring there can be carried."""

    node: bytes
    name: str = ""
    host: str = ""  # where its unicast port is
    port: int = 0


class NeighbourLost(msgspec.Struct, frozen=True):
    node: bytes
    reason: str = ""


class ReportReceived(msgspec.Struct, frozen=True):
    """Over the TCP link: on which links that node hears us."""

    node: bytes
    links: tuple[int, ...]


class Tick(msgspec.Struct, frozen=True): ...


Event = (
    MembersChanged | Send | DatagramsReceived | ReceiverPaused | Rejoin | ReachChanged | NeighbourFound | NeighbourLost
    | ReportReceived | Tick
)  # fmt: skip

# -- commands --------------------------------------------------------------------------------------


class Multicast(msgspec.Struct, frozen=True):
    link: int
    datagrams: list[bytes]


class Unicast(msgspec.Struct, frozen=True):
    """To the control port of that node."""

    node: bytes
    datagrams: list[bytes]


class Carry(msgspec.Struct, frozen=True):
    """Over the TCP link to that node, as the same bytes; dropped if there is none or it is full."""

    node: bytes
    datagrams: list[bytes]


class SendReport(msgspec.Struct, frozen=True):
    """Over the TCP link: on which links we hear that node."""

    node: bytes
    links: tuple[int, ...]


class Delivered(msgspec.Struct, frozen=True):
    """Messages `number`, `number + 1`, … of the sender's stream. A node that is sender and receiver gets its own as it
    sends them: of that stream it is told no beginning and no end."""

    channel: int
    sender: bytes
    number: int
    messages: list[bytes]


class ChannelBlocked(msgspec.Struct, frozen=True):
    """As much waits for receivers as should: send no more. One longest message still has room, then sending fails."""

    channel: int


class ChannelUnblocked(msgspec.Struct, frozen=True):
    channel: int


class StreamStarted(msgspec.Struct, frozen=True):
    """From here on this receiver gets all of the sender's messages; `number` is the first."""

    channel: int
    sender: bytes
    number: int


class StreamLost(msgspec.Struct, frozen=True):
    """The sender went on without this receiver, or this receiver was taken out: nothing from `number` on arrives."""

    channel: int
    sender: bytes
    number: int
    reason: str


class StreamEnded(msgspec.Struct, frozen=True):
    """The sender is not in the view any more. Every receiver that stayed was told the same `number`: the first that
    none of them got. (If its stream was to begin beyond that, it is told where: it got nothing.)"""

    channel: int
    sender: bytes
    number: int


class Evicted(msgspec.Struct, frozen=True):
    """This sender went on without that receiver, which held up the others; it was told."""

    channel: int
    receiver: bytes


Command = (
    Multicast | Unicast | Carry | SendReport | Delivered | ChannelBlocked | ChannelUnblocked
    | StreamStarted | StreamLost | StreamEnded | Evicted
)  # fmt: skip

# -- settings --------------------------------------------------------------------------------------

_TUNNEL_BYTES = 100  # headers of IP and UDP, and of whatever else is around them
_DATAGRAM_BYTES_WORTHWHILE = 8_900  # what a datagram costs is little for each byte then, and its loss not yet dear

@dataclass(frozen=True, slots=True)
class BusSettings:
    # A datagram in all, header and tag included: fits an Ethernet frame with room for tunnels. `fitted` has more where
    # the network takes more.
    datagram_bytes_max: int = 1_400
    # Longest message: a client's longest frame and its envelope.
    message_bytes_max: int = (8 << 20) + (1 << 16)
    # Datagrams of one channel waiting to be sent or acknowledged. Above `high` the channel is blocked, below `low` it
    # is unblocked, past `max` sending is refused; between `high` and `max` one longest message has room.
    ring_datagrams_high: int = 8_192
    ring_datagrams_low: int = 4_096
    ring_datagrams_max: int = 16_384
    # Datagrams a receiver takes beyond what it has in order. Fits a socket buffer of 4 MiB (a datagram takes 2,304
    # bytes there), so that a receiver that stalls loses nothing. It also bounds what it keeps for others.
    window_datagrams: int = 1_536
    # An acknowledgement at least after so many datagrams, and at the latest after that time.
    ack_every_datagrams: int = 64
    ack_after_s: float = 0.01
    # Missing datagrams are asked for after a back-off of 0.5 to 1.5 times the round trip, but at least of this.
    nak_backoff_s_min: float = 0.002
    # Each time in vain doubles the back-off, up to this.
    nak_backoff_s_max: float = 0.2
    # A repair waits so long for others who lack the same: then it is one multicast instead of unicasts.
    repair_gather_s: float = 0.001
    # Repairs are limited to this part of the data, and this constant: bytes at once and bytes for each second. Without
    # the latter nothing would move where more is lost than the part.
    repair_share_max: float = 0.1
    repair_bytes_burst: int = 1 << 18
    repair_bytes_per_s: int = 2 << 20
    # Pace: between these limits; a loss of the part p in a moment slows down by p/2, a moment without adds a step.
    pace_bytes_per_s_min: int = 4 << 20
    pace_bytes_per_s_max: int = 1 << 30
    pace_bytes_per_s_first: int = 128 << 20
    pace_bytes_per_s_step: int = 2 << 20
    pace_moment_s: float = 0.01
    # The highest sequence is told while something is unacknowledged, and less and less often when all know it.
    heartbeat_s_min: float = 0.02
    heartbeat_s_max: float = 5.0
    # A receiver that is behind another one and has not got on by `progress_datagrams_min` (or to where the other was)
    # in that time is put out. More than group services need to notice a dead node.
    evict_after_s: float = 5.0
    progress_datagrams_min: int = 1_024
    # What wants an answer is repeated after this, doubled each time up to the longest.
    repeat_s: float = 0.02
    repeat_s_max: float = 1.0
    # Every node probes its links and its neighbours so often; who heard no probe for so long is sent everything over
    # TCP. With a fifth of all datagrams lost, four in a row are missed once in 600.
    probe_s: float = 0.5
    unheard_s: float = 2.0
    # Channels of one node in its life, past it opening one is refused; senders and receivers of one channel, likewise;
    # and senders that are gone and whose end is not agreed yet, past it the oldest is given up (`StreamLost`).
    channels_max: int = 4_096
    members_max: int = 1_024

    def __post_init__(self) -> None:
        if not 0 < self.ring_datagrams_low < self.ring_datagrams_high < self.ring_datagrams_max:
            raise ConfigError("bus: ring_datagrams_low, ring_datagrams_high and ring_datagrams_max have to ascend")
        if not 0 < self.ack_every_datagrams <= self.window_datagrams <= 0xFFFF:
            raise ConfigError("bus: window_datagrams has to be in ack_every_datagrams..65535")
        if not 256 <= self.datagram_bytes_max <= 65_000:
            raise ConfigError("bus: datagram_bytes_max has to be in 256..65000")
        if not 0 < self.pace_bytes_per_s_min <= self.pace_bytes_per_s_first <= self.pace_bytes_per_s_max:
            raise ConfigError("bus: pace_bytes_per_s_min, _first and _max have to ascend")

    def fitted(self, mtu_bytes: int) -> "BusSettings":
        """For a network that takes longer datagrams: fewer of them, so that rings and windows hold as many bytes."""
        size = min(mtu_bytes - _TUNNEL_BYTES, _DATAGRAM_BYTES_WORTHWHILE)
        if size <= self.datagram_bytes_max:
            return self

        def as_many_bytes(datagrams: int) -> int:
            return max(2, datagrams * self.datagram_bytes_max // size)

        return replace(
            self, datagram_bytes_max=size,
            ring_datagrams_high=as_many_bytes(self.ring_datagrams_high),
            ring_datagrams_low=as_many_bytes(self.ring_datagrams_low),
            ring_datagrams_max=as_many_bytes(self.ring_datagrams_max),
            window_datagrams=as_many_bytes(self.window_datagrams),
            ack_every_datagrams=as_many_bytes(self.ack_every_datagrams),
            progress_datagrams_min=as_many_bytes(self.progress_datagrams_min),
        )  # fmt: skip
