"""A world of trade across replica groups: traders' inputs and outputs are in different groups, and each group's message
manager, and each of two client managers before them, dies and starts alone.
"""
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from random import Random

from angarium.core.destination.administration import describe
from angarium.core.destination.events import DestinationSettings, FromSession, Report, ToSession
from angarium.core.groups.records import Placement
from angarium.core.ids import group_of
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.session.events import SessionSettings
from angarium.core.storage import Operation, Table, key_of
from angarium.core.wire import frames
from angarium.sim.broker import BrokerSettings
from angarium.sim.checkers import Ledger
from angarium.sim.client import SimClient
from angarium.sim.clock import Clock
from angarium.sim.cluster import SimCluster, SimGroup, Surroundings
from angarium.sim.disk import SimDisk
from angarium.sim.durable import DurableState
from angarium.sim.faults import Faults
from angarium.sim.group_holdings import GroupHoldings
from angarium.sim.messages import Violation
from angarium.sim.network import Network
from angarium.sim.spanning_audit import SpanningAudit
from angarium.sim.trace import Trace
from angarium.sim.trade import INPUTS, OUTPUTS, TradeWorld
from angarium.sim.transacted_applications import Trader
from angarium.sim.world import Outcome, WorldSettings, draw_settings

_SETTLE_IN_S = 0.5
_LEAVE_S_MAX = 30.0
_TROUBLE_S = 4.0
_MESSAGES = 80
GROUPS = (1, 2, 3)


class GroupLedger(Ledger):
    """Of several message managers; shown to it by `SpanningWorld`."""

    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        super().__init__(clock, grace_s=grace_s)
        self.group_holdings = GroupHoldings(self.messages, grace_s=grace_s)
        self.holdings = self.group_holdings

    def to_manager(self, event: FromSession) -> None:
        if isinstance(event.frame, frames.TransactionCommit | frames.CommitPrepare):
            known = dict(self._commits.get((event.session, event.frame.number), ()))
            known |= {number: ranges for _, number, ranges in event.frame.settles}
            self._commits[event.session, event.frame.number] = list(known.items())
        else:
            super().to_manager(event)


    def from_manager(self, command: ToSession) -> None:
        frame = command.frame
        if isinstance(frame, frames.CommitFinal):
            self.tally["decisions told"] += 1
            self.holdings.committed(frame.session, self._commits[frame.session, frame.number])
        else:
            super().from_manager(command)


class SpanningWorld(TradeWorld):
    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.settings = settings = settings or draw_settings(seed)
        self.clock = Clock(self.chance("clock"))
        self.trace = Trace(self.clock, is_read=is_traced)
        self.ledger: GroupLedger = GroupLedger(self.clock, grace_s=settings.grace_s)
        self.network = Network(self.clock, self.trace, self.chance("network"), settings.network)
        self.placement = self._place(self.chance("placement"))
        self.durable = DurableState()
        self.transactions = SpanningAudit(
            self.ledger.messages, self.ledger.holdings, set(INPUTS), self.placement.exceptions.__getitem__
        )
        chance = self.chance("cluster")
        broker_settings = BrokerSettings(
            SessionSettings(heartbeat_s=settings.heartbeat_s),
            DestinationSettings(resume_grace_s=settings.grace_s, in_doubt_s=chance.choice((0.2, 1.0, 3.0))),
            bus_delay_s_max=settings.bus_delay_s_max,
            answer_delay_s_max=settings.answer_delay_s_max,
            check_every=settings.check_every,
        )
        around = Surroundings(self.clock, self.trace, chance, self.network, broker_settings, self)
        numbers = sorted({*self.placement.slots, *self.placement.exceptions.values()})
        self.cluster = SimCluster(around, self.placement, {number: self._disk(number) for number in numbers})
        self.applications = []
        self._clients = 0
        self._observer: SimClient | None = None
        self._serial = count(1)
        self._identifiers = []
        self._inputs, self._outputs = INPUTS, OUTPUTS
        self.cluster.start()

    def _place(self, chance: Random) -> Placement:
        groups = GROUPS[: chance.choice((2, 3))]
        # Two of them at least are in different groups; else nothing would span.
        dealt = [*groups[:2], chance.choice(groups), chance.choice(groups)]
        chance.shuffle(dealt)
        return Placement(1, tuple(groups), dict(zip((*INPUTS, *OUTPUTS), dealt, strict=True)))

    def _disk(self, number: int) -> SimDisk:
        return SimDisk(
            self.clock, self.trace, self.chance(f"disk {number}"), self.settings.disk,
            partial(self._synced_in, number), self.chance(f"stream files {number}"),
        )  # fmt: skip

    # -- the witness ---------------------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        self.ledger.to_manager(event)
        self.transactions.to_manager(event)

    def from_manager(self, command: ToSession) -> None:
        if isinstance(command.frame, frames.Deliver):
            facts = self.ledger.holdings.consumers[command.session, command.frame.consumer]
            disk = self.cluster.groups[group_of(facts.destination)].disk
            self.ledger.last_token = lambda: disk.last_token
        self.transactions.from_manager(command)
        self.ledger.from_manager(command)

    def broker_started(self) -> None: ...

    def broker_stopped(self) -> None: ...

    def reported(self, report: Report) -> None:
        self.ledger.reported(report)

    def group_started(self, group: SimGroup) -> None:
        self.ledger.tally["group starts"] += 1
        self.ledger.group_holdings.group_started(group.number, self.clock.now)

    def group_stopped(self, group: SimGroup) -> None:
        self.ledger.group_holdings.group_stopped(group.number, self.clock.now, group.disk.is_unsynced_up_to)

    def _synced_in(self, group: int, operations: Sequence[Operation]) -> None:
        self.ledger.messages.synced(operations)
        self.transactions.prepared_in(operations)
        self.transactions.changed_in(group, self.durable.apply(operations))

    # -- a random run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        faults = self._troubles()
        self.clock.run_until(_TROUBLE_S)
        faults.stop()
        for application in self.applications:
            application.calm_down()
        self._add_drainer()
        self.drain()
        self.leave()
        produced = self.ledger.messages.producers
        return Outcome(
            self.seed, self.trace.digest(), faults.kinds, sum(len(facts.bodies) for facts in produced),
            sum(facts.confirmed for facts in produced), self.clock.happened, self.clock.now,
            dict(self.ledger.tally),
        )  # fmt: skip

    def _troubles(self) -> "ClusterFaults":
        chance = self.chance("trade")
        administrator = self.client("administrator")
        for name in chain(self._inputs, self._outputs):
            options: dict[str, object] = {"redelivery_delay_ms": chance.choice((0, 0, 100))}
            if name in OUTPUTS and chance.random() < 0.4:  # then some parts cannot be prepared
                options |= {"messages_max": chance.choice((5, 20)), "over_limit": chance.choice(("block", "refuse"))}
            administrator.request("destination.create", name=name, kind="queue", **options)
        self.clock.run_until(_SETTLE_IN_S)
        administrator.close()
        self._add_supplier("supplier-1", _MESSAGES)
        for number in range(chance.randint(1, 3)):
            self._add_trader(f"trader-{number + 1}")
        self._add_receiver("buyer-1")
        return ClusterFaults(self, self.chance("faults"))

    @property
    def trade_audit(self) -> SpanningAudit:
        return self.transactions

    def _add_trader(self, name: str) -> Trader:
        trader = super()._add_trader(name)
        trader.renew_chance = self.chance(f"renewing {name}").choice((0.0, 0.05, 0.3))
        return trader

    def _undone(self) -> Iterator[str]:
        yield from (f"{a.client.name} has {a.messages_left} to publish" for a in self.applications if not a.is_done)
        yield from self.transactions.unfinished()
        yield from self.ledger.unfinished()
        if any(self.durable.waiting()):
            yield "some messages are not due yet"
        if not self.cluster.is_idle:
            yield "the cluster is busy"
            return
        for group in self.cluster.groups.values():
            assert group.manager is not None
            for destination in group.manager.machine.destinations.values():
                messages = describe(destination)["messages"]
                if messages and destination.record.name != DMQ:
                    yield f"{destination.record.name}: the broker has {messages} messages"

    def leave(self) -> None:
        """Every client goes; then nothing may be prepared, locked, or undecided, in memory or on disk."""
        for application in self.applications:
            for session in list(application.client.sessions.values()):
                session.close(timeout_s=_LEAVE_S_MAX)
        self.run_for(3 * self.settings.heartbeat_s)
        for application in self.applications:
            application.client.close()
        self.run_for(self.settings.grace_s + 4.0)
        for group in self.cluster.groups.values():
            if left := list(self._left_in(group)):
                raise Violation("nothing is left over", f"group {group.number}: {'; '.join(left[:8])}")

    def _left_in(self, group: SimGroup) -> Iterator[str]:
        assert group.manager is not None
        machine = group.manager.machine
        transactions = machine.transactions
        if len(transactions.participant) or len(transactions.decisions):
            yield f"{len(transactions.participant)} prepared, {len(transactions.decisions)} decided"
        grave = machine.find(DMQ)
        graves = b"" if grave is None else key_of(grave.identity)
        for table in (Table.PREPARED, Table.DECISION, Table.BATCH, Table.ATTACHED):
            items = group.disk.store.scan(table, b"", b"\xff" * 60, limit=10_000)
            if left := sum(item.key[:8] != graves for item in items):
                yield f"{table.name}: {left} records"
        for destination in machine.destinations.values():
            if any(subscription.locks for subscription in destination.subscriptions):
                yield f"{destination.record.name}: something is locked"
            if destination.state.reserved:
                yield f"{destination.record.name}: {destination.state.reserved} messages are reserved"


class ClusterFaults(Faults):
    def __init__(self, world: SpanningWorld, chance: Random) -> None:
        self._around = world
        self._world = world
        self._chance = chance
        self._is_over = False
        kinds: dict[str, tuple[Callable[[], None], float]] = {  # name -> what happens, mean seconds between
            "cut": (self._cut, 1.0),
            "group-crash": (self._crash_group, 0.8),
            "crash-at-a-sync": (self._crash_at_a_sync, 0.5),
            "front-crash": (self._crash_front, 1.0),
            "both-crash": (self._crash_both, 1.5),
            "disk-slow": (self._slow_disk, 2.0),
            "disk-full": (self._fill_disk, 2.0),
            "client-crash": (self._crash_client, 1.5),
        }
        self.kinds = [name for name in kinds if chance.random() < 0.45]
        for name in self.kinds:
            self._schedule(*kinds[name])

    def stop(self) -> None:
        self._is_over = True
        self._around.trace.note("faults", "all is healed")
        for group in self._around.cluster.groups.values():
            group.disk.before_sync = group.disk.after_sync = None
            group.disk.fill(False)
            group.disk.slowness = 1.0
        self._around.cluster.start()

    def _group(self) -> SimGroup:
        return self._chance.choice(list(self._around.cluster.groups.values()))

    def _crash_group(self) -> None:
        self._kill(self._group())

    def _kill(self, group: SimGroup) -> None:
        group.crash(keeps_staged=self._chance.random() < 0.5)
        self._later(self._down_s(), group.start)

    def _crash_at_a_sync(self) -> None:
        group = self._group()
        if self._chance.random() < 0.5:
            group.disk.before_sync = partial(self._kill, group)
        else:
            group.disk.after_sync = partial(self._kill, group)

    def _crash_front(self) -> None:
        self._around.cluster.crash_front()
        self._later(self._down_s(), self._around.cluster.start)

    def _crash_both(self) -> None:
        self._around.cluster.crash_front()
        self._kill(self._group())
        self._later(self._down_s(), self._around.cluster.start)

    def _slow_disk(self) -> None:
        group = self._group()
        group.disk.slowness = self._chance.choice((1.0, 10.0, 50.0))
        self._note(f"the disk of group {group.number} is {group.disk.slowness:g} times slower")

    def _fill_disk(self) -> None:
        group = self._group()
        self._note(f"the disk of group {group.number} is full")
        group.disk.fill(True)
        self._later(self._chance.choice((0.1, 1.0)) * self._chance.random(), partial(group.disk.fill, False))
