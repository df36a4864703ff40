"""A world of bus nodes under one seed: first faults (safety), then they heal and everything has to arrive (liveness).

Senders send what they like while their channel is not blocked. Nodes pause like a process that gets no processor time,
and like an application that asks for no more; directions are cut; nodes crash, are taken out of the view some time
later, and come back under a new incarnation; multicast stops working for a pair and is carried. Every node is told of a
view at a time of its own.

    python -m angarium.sim --world bus --seeds 200      run them; exit status 1 if a promise was broken
    python -m angarium.sim --world bus --seed 17        run one and print what happened
"""
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from angarium.core.bus.events import BusSettings, MembersChanged, ReachChanged, ReceiverPaused, Rejoin
from angarium.core.bus.seal import Boxes, OpenBoxes, SealedBoxes
from angarium.sim.bus_checkers import BusLedger
from angarium.sim.bus_network import DatagramNetwork, NetworkFaults
from angarium.sim.bus_node import CHANNEL, CLUSTER, BusNode
from angarium.sim.clock import Clock
from angarium.sim.messages import Violation
from angarium.sim.trace import Trace

SMALL = BusSettings(
    datagram_bytes_max=256, message_bytes_max=6_000, ring_datagrams_low=32, ring_datagrams_high=64,
    ring_datagrams_max=160, window_datagrams=48, ack_every_datagrams=8, repair_bytes_burst=8_192,
    repair_bytes_per_s=65_536, pace_bytes_per_s_min=50_000, pace_bytes_per_s_first=1_000_000,
    pace_bytes_per_s_max=4_000_000, pace_bytes_per_s_step=20_000, evict_after_s=1.0, progress_datagrams_min=32,
)  # fmt: skip
_RECEIVERS_MAX = 6
_SECRET = b"the secret of a simulated cluster"


@dataclass(frozen=True, slots=True)
class BusWorldSettings:
    senders: int = 2
    receivers: int = 3
    both: int = 0  # of the receivers, how many send as well
    network: NetworkFaults = field(default_factory=NetworkFaults)
    sealed: bool = False
    faults_s: float = 1.5
    faults: tuple[str, ...] = ()  # among FAULTS
    faults_per_s: float = 4.0
    sends_per_s: float = 150.0
    bus: BusSettings = SMALL
    may_evict: bool = True  # whether the faults are such that somebody may hold up the others for too long


FAULTS = ("freeze", "cut", "full", "crash", "join", "flap", "unreached")


def draw_bus_settings(seed: int) -> BusWorldSettings:
    chance = Random(f"bus settings {seed}")
    receivers = chance.randint(1, 4)
    network = NetworkFaults(
        loss_chance=chance.choice((0.0, 0.01, 0.05, 0.2)),
        double_chance=chance.choice((0.0, 0.02, 0.1)),
        overtake_chance=chance.choice((0.0, 0.05, 0.3)),
    )
    return BusWorldSettings(
        senders=chance.randint(1, 3), receivers=receivers, both=chance.randint(0, receivers), network=network,
        sealed=chance.random() < 0.2, faults=tuple(f for f in FAULTS if chance.random() < 0.4),
        sends_per_s=chance.choice((20.0, 60.0, 200.0)),
    )  # fmt: skip


class BusWorld:
    def __init__(self, seed: int, settings: BusWorldSettings | None = None, *, is_traced: bool = False) -> None:
        self.settings = settings or draw_bus_settings(seed)
        self.chance = Random(f"bus {seed}")
        self.clock = Clock(Random(f"bus ties {seed}"))
        self.trace = Trace(self.clock, is_read=is_traced)
        self.ledger = BusLedger(self.settings.bus, may_evict=self.settings.may_evict)
        self.network = DatagramNetwork(self.clock, self.chance, self.settings.network)
        self.view = 0
        self.nodes: dict[bytes, BusNode] = {}  # that live
        self.senders: list[bytes] = []  # of the newest view, as the receivers
        self.receivers: list[bytes] = []
        self._started = 0
        self.healed = False
        for index in range(self.settings.receivers):
            node = self.start_node()
            self.receivers.append(node)
            if index < self.settings.both:
                self.senders.append(node)
        self.senders += [self.start_node() for _ in range(self.settings.senders)]
        self.change_view(at_once=True)

    def boxes(self) -> Boxes:
        return SealedBoxes(_SECRET, CLUSTER) if self.settings.sealed else OpenBoxes()

    # -- who is here ------------------------------------------------------------------------------------

    def start_node(self) -> bytes:
        self._started += 1
        incarnation = self._started.to_bytes(16, "big")
        self.nodes[incarnation] = BusNode(self, incarnation)
        return incarnation

    def change_view(self, *, at_once: bool = False) -> None:
        """Every node that lives is told, at a time of its own."""
        self.view += 1
        event = MembersChanged(CHANNEL, self.view, tuple(self.senders), tuple(self.receivers))
        self.trace.note("view", f"{self.view} senders {len(self.senders)} receivers {len(self.receivers)}")
        for node in self.nodes.values():
            delay_s = 0.0 if at_once else self.chance.uniform(0.0, 0.05)
            self.clock.after(delay_s, partial(self._tell_view, node, event))

    def _tell_view(self, node: BusNode, event: MembersChanged) -> None:
        if node.alive:
            node.tell(event)

    def crash(self, incarnation: bytes) -> None:
        """It is taken out of the view after a while, and another takes its place."""
        node = self.nodes.pop(incarnation)
        node.crash()
        self.trace.note(node.name, "crashes")
        self.ledger.died(incarnation)
        self.clock.after(self.chance.uniform(0.05, 0.4), partial(self._replace, incarnation))

    def _replace(self, gone: bytes) -> None:
        sent, received = gone in self.senders, gone in self.receivers
        self.senders = [s for s in self.senders if s != gone]
        self.receivers = [r for r in self.receivers if r != gone]
        if self.chance.random() < 0.7:
            fresh = self.start_node()
            if sent:
                self.senders.append(fresh)
            if received:
                self.receivers.append(fresh)
        self.change_view()

    # -- running ----------------------------------------------------------------------------------------

    def run(self) -> "BusWorld":
        settings = self.settings
        if settings.faults:
            self.clock.after(self.chance.expovariate(settings.faults_per_s), self._fault)
        self.clock.run_until(settings.faults_s)
        self.heal()
        self.run_until_quiet(seconds_max=40.0)
        return self

    def _fault(self) -> None:
        if self.healed:
            return
        self.clock.after(self.chance.expovariate(self.settings.faults_per_s), self._fault)
        fault = self.chance.choice(self.settings.faults)
        members = list(dict.fromkeys(self.senders + self.receivers))
        node = self.nodes.get(self.chance.choice(members))
        other = self.chance.choice(members)
        if node is None:
            return
        self.trace.note(node.name, f"suffers {fault}")
        duration_s = self.chance.choice((0.05, 0.3, 1.5))
        if fault == "freeze":
            node.freeze(duration_s)
        elif fault == "full" and node.incarnation in self.receivers:
            node.tell(ReceiverPaused(CHANNEL, True))
            self.clock.after(duration_s, partial(self._let_go, node))
        elif fault == "cut" and other != node.incarnation:
            pair = (node.incarnation, other)
            self.network.cut.add(pair)
            self.clock.after(duration_s, lambda: self.network.cut.discard(pair))
        elif fault == "unreached" and other != node.incarnation:
            node.tell(ReachChanged(other, self.chance.choice((0, -1)), self.chance.random() < 0.4))
        elif fault == "crash" and len(self.nodes) > 2 and not self._lonely(node.incarnation):
            self.crash(node.incarnation)
        elif fault == "join" and len(self.receivers) < _RECEIVERS_MAX:
            self.receivers.append(self.start_node())
            self.change_view()
        elif fault == "flap" and len(self.receivers) > 1 and node.incarnation in self.receivers:
            self._flap(node.incarnation)

    def _flap(self, incarnation: bytes) -> None:
        """A receiver is taken out, and in again at once: some nodes may never hear of the view between."""
        self.receivers.remove(incarnation)
        self.ledger.taken_out(incarnation)
        self.change_view()
        self.receivers.append(incarnation)
        self.change_view()

    def _let_go(self, node: BusNode) -> None:
        if node.alive:
            node.tell(ReceiverPaused(CHANNEL, False))

    def _lonely(self, incarnation: bytes) -> bool:
        living = [r for r in self.receivers if r in self.nodes]
        return incarnation in living and len(living) == 1

    def heal(self) -> None:
        self.healed = True
        self.network.cut.clear()
        self.network.faults = replace(self.network.faults, loss_chance=0.0, double_chance=0.0)
        self.trace.note("world", "heals")
        for incarnation in [i for i in self.senders + self.receivers if i not in self.nodes]:
            self.senders = [s for s in self.senders if s != incarnation]
            self.receivers = [r for r in self.receivers if r != incarnation]
        self.change_view()
        for node in self.nodes.values():
            node.heal()

    def run_until_quiet(self, *, seconds_max: float) -> None:
        until = self.clock.now + seconds_max
        while self.clock.now < until:
            self.clock.run_until(self.clock.now + 0.5)
            missing = self.missing()
            if not missing:
                return
        raise Violation("everything arrives in the end", missing)

    def missing(self) -> str:
        """What has not arrived yet, for people."""
        for sender in self.senders:
            sent = len(self.ledger.sent.get((CHANNEL, sender), ()))
            for receiver in self.receivers:
                if receiver == sender:
                    continue
                following = self.ledger.open.get((receiver, (CHANNEL, sender)))
                if following != sent + 1:
                    return f"{receiver.hex()[-4:]} is at {following} of {sender.hex()[-4:]}, which sent {sent}"
        for receiver, (_, sender) in self.ledger.open:
            if sender not in self.senders:
                return f"{receiver.hex()[-4:]} was not told the end of {sender.hex()[-4:]}"
        return ""

    def rejoin_later(self, node: BusNode, sender: bytes) -> None:
        def rejoin() -> None:
            if node.alive and sender in self.senders and node.incarnation in self.receivers:
                node.tell(Rejoin(CHANNEL, sender))

        self.clock.after(self.chance.uniform(0.01, 0.3), rejoin)
