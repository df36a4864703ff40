"""One node of a simulated bus: the machine, a socket buffer in front of it, and an application that sends."""
from typing import TYPE_CHECKING

from angarium.core.bus.datagram import cluster_number
from angarium.core.bus.events import (
    Carry,
    ChannelBlocked,
    ChannelUnblocked,
    Command,
    DatagramsReceived,
    Delivered,
    Event,
    Evicted,
    MembersChanged,
    Multicast,
    ReachChanged,
    ReceiverPaused,
    Send,
    StreamEnded,
    StreamLost,
    StreamStarted,
    Tick,
    Unicast,
)
from angarium.core.bus.machine import BusMachine
from angarium.core.errors import Unavailable
from angarium.sim.clock import Timer
from angarium.sim.messages import Violation

if TYPE_CHECKING:
    from angarium.sim.bus_world import BusWorld

CHANNEL = 7
CLUSTER = cluster_number("simulated")
_SOCKET_DATAGRAMS = 60  # what waits for a node that is frozen; the rest is lost
_TICKS_MAX = 1_000  # at one moment: a machine that is never content


class BusNode:
    def __init__(self, world: "BusWorld", incarnation: bytes) -> None:
        self._world = world
        self.incarnation = incarnation
        self.name = f"node {int.from_bytes(incarnation, 'big')}"
        self.alive = True
        self.blocked = False
        self._sends = False  # the application has begun
        self._frozen_until = 0.0
        self._inbox: list[bytes] = []
        self._events: list[Event] = []  # told while frozen
        self._timer: Timer | None = None
        self._ticks = (0.0, 0)
        self._cut: list[tuple[bytes, int]] = []
        self._paused = False
        self.machine = BusMachine(
            cluster=CLUSTER, incarnation=incarnation, boxes=world.boxes(), jitter=world.chance.random,
            settings=world.settings.bus,
        )  # fmt: skip
        world.network.attach(incarnation, self._arrive)

    # -- what happens to it ----------------------------------------------------------------------------

    def crash(self) -> None:
        self.alive = False
        self._world.network.detach(self.incarnation)

    def freeze(self, duration_s: float) -> None:
        self._frozen_until = self._world.clock.now + duration_s
        self._world.clock.after(duration_s, self._thaw)

    def _thaw(self) -> None:
        if not self.alive or self._is_frozen():
            return
        inbox, self._inbox = self._inbox, []
        events, self._events = self._events, []
        for event in events:
            self.tell(event)
        if inbox:
            self.tell(DatagramsReceived(inbox))
        self.tell(Tick())

    def heal(self) -> None:
        self._frozen_until = 0.0
        self._thaw()
        for node, link in list(self._cut):
            self.tell(ReachChanged(node, link, True))
        if self._paused:
            self.tell(ReceiverPaused(CHANNEL, False))

    def _is_frozen(self) -> bool:
        return self._world.clock.now < self._frozen_until

    def _arrive(self, datagrams: list[bytes]) -> None:
        if self._is_frozen():
            self._inbox += datagrams[: _SOCKET_DATAGRAMS - len(self._inbox)]
        else:
            self._world.trace.mix(1, b"".join(datagrams))
            self.tell(DatagramsReceived(datagrams))

    # -- the application -------------------------------------------------------------------------------

    def send_later(self) -> None:
        self._world.clock.after(self._world.chance.expovariate(self._world.settings.sends_per_s), self._send)

    def _send(self) -> None:
        world = self._world
        if not self.alive or world.healed:
            return
        self.send_later()
        if self.blocked or self._is_frozen() or not self.is_sender():
            return
        chance = world.chance
        count = chance.choice((1, 1, 1, 3, 8))
        messages = [chance.randbytes(chance.choice((0, 10, 100, 100, 700, 3_000))) for _ in range(count)]
        try:
            self.machine.check_send(CHANNEL, [len(message) for message in messages])
        except Unavailable:
            del messages[1:]  # many large ones at once; while it is not blocked there is room for one of any size
        world.ledger.sends(CHANNEL, self.incarnation, self.machine.number_next(CHANNEL), messages)
        self.tell(Send(CHANNEL, [(m[: len(m) // 2], m[len(m) // 2 :]) for m in messages]))

    def is_sender(self) -> bool:
        channel = self.machine.channels.get(CHANNEL)
        return channel is not None and channel.sending is not None

    # -- the driver ------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        if self._is_frozen():
            self._events.append(event)
            return
        if isinstance(event, ReachChanged):
            self._cut.append((event.node, event.link))
        elif isinstance(event, ReceiverPaused):
            self._paused = event.paused
            if CHANNEL not in self.machine.channels:
                return
        now = self._world.clock.now
        for command in self.machine.handle(event, now=now):
            self._perform(command, now)
        channel = self.machine.channels.get(CHANNEL)
        if channel is not None:
            self._world.ledger.check_bounds(channel)
        if isinstance(event, MembersChanged) and self.is_sender() and not self._sends:
            self._sends = True
            self.send_later()
        self._arm(now)

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.machine.deadline()
        if due is not None:
            self._timer = self._world.clock.at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._world.clock.now
        at, count = self._ticks
        self._ticks = (now, count + 1 if at == now else 0)
        if self._ticks[1] > _TICKS_MAX:
            raise Violation("comes to rest", f"{self.name} is due again and again at {now:.6f}")
        if self.alive and not self._is_frozen():
            self.tell(Tick())

    def _perform(self, command: Command, now: float) -> None:
        world, ledger, me = self._world, self._world.ledger, self.incarnation
        match command:
            case Multicast(_, datagrams):
                ledger.leaves(me, datagrams, now)
                world.network.multicast(me, datagrams)
            case Unicast(node, datagrams):
                ledger.leaves(me, datagrams, now)
                world.network.unicast(me, node, datagrams)
            case Carry(node, datagrams):
                world.network.carry(me, node, datagrams)
            case Delivered(channel, sender, number, messages):
                ledger.delivered(me, (channel, sender), number, messages)
            case ChannelBlocked():
                self.blocked = True
            case ChannelUnblocked():
                self.blocked = False
            case StreamStarted(channel, sender, number):
                ledger.started(me, (channel, sender), number)
            case StreamLost(channel, sender, number, _):
                ledger.lost(me, (channel, sender), number)
                world.rejoin_later(self, sender)
            case StreamEnded(channel, sender, number):
                ledger.ended(me, (channel, sender), number)
            case Evicted(channel, receiver):
                ledger.evicted(receiver, (channel, me))
        if not isinstance(command, Multicast | Unicast | Carry):
            world.trace.note(self.name, f"{type(command).__name__} {getattr(command, 'number', '')}")
