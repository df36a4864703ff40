"""Goal: the checkers of replication can fail. Method: plant a bug, and some seed among a few must catch it."""
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from angarium.core.destination.events import Write
from angarium.core.groups.configuration import GroupConfiguration, Position, Replica
from angarium.core.replication import events as r
from angarium.core.replication import guest
from angarium.core.replication import messages as m
from angarium.core.replication.backup import Backup
from angarium.core.replication.files import BackupFiles
from angarium.core.replication.guest import Guest
from angarium.core.replication.history import History, StoredReplica
from angarium.core.replication.local import LocalStore
from angarium.core.replication.peers import Peer, Peers
from angarium.core.replication.primary import Primary
from angarium.core.replication.ranges import replicated_ranges
from angarium.core.replication.replication import Replication
from angarium.core.storage import DeleteRange, Table
from angarium.sim.messages import Violation
from angarium.sim.replicas.groups import Decider
from angarium.sim.replicas.node import SimReplica
from angarium.sim.replicas.world import ReplicaWorld

SEEDS_MAX = 300

Plant = Callable[[pytest.MonkeyPatch], None]


# -- disks ---------------------------------------------------------------------------------------------


def acknowledge_before_durable(patch: pytest.MonkeyPatch) -> None:
    ack = Backup._ack

    def mutant(self: Backup) -> Any:
        written, self._local.written = self._local.written, self._local.handed
        commands = ack(self)
        self._local.written = written
        return commands

    patch.setattr(Backup, "_ack", mutant)


def skip_the_sync(patch: pytest.MonkeyPatch) -> None:
    do = SimReplica._do

    def mutant(self: SimReplica, command: r.Command) -> None:
        do(self, command)
        if isinstance(command, r.WriteLocal):
            self.written([command.token])

    patch.setattr(SimReplica, "_do", mutant)


def orders_overtake_on_a_full_disk(patch: pytest.MonkeyPatch) -> None:
    do = SimReplica._do

    def mutant(self: SimReplica, command: r.Command) -> None:
        if isinstance(command, r.WriteLocal):
            frees = any(isinstance(operation, DeleteRange) for operation in command.operations)
            self.disk.write(Write(command.token, command.operations, freeing=frees))
        else:
            do(self, command)

    patch.setattr(SimReplica, "_do", mutant)


def a_position_is_noted_too_early(patch: pytest.MonkeyPatch) -> None:
    write = LocalStore.write_orders

    def mutant(self: LocalStore, orders: Any) -> r.WriteLocal:
        command = write(self, orders)
        if len(orders) > 1:
            command.operations[:] = [*command.operations[len(orders[0].operations) :]]
        return command

    patch.setattr(LocalStore, "write_orders", mutant)


# -- epochs --------------------------------------------------------------------------------------------


def accept_a_lower_epoch(patch: pytest.MonkeyPatch) -> None:
    handle = Replication._message

    def mutant(self: Replication, sender: Replica, message: Any, payload: bytes, now: float) -> Any:
        if isinstance(message, m.Order) and message.epoch < self.epoch and isinstance(self.role, Backup):
            return self.role.order(msgspec.structs.replace(message, epoch=self.epoch), payload, now=now)
        return handle(self, sender, message, payload, now)

    patch.setattr(Replication, "_message", mutant)


def forget_the_fence_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    init = Replication.__init__

    def mutant(self: Replication, me: Replica, start: bytes, group: str, stored: StoredReplica, *others: Any) -> None:
        stored.fence = 0
        init(self, me, start, group, stored, *others)

    patch.setattr(Replication, "__init__", mutant)


def promise_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    fence = Replication._fence

    def mutant(self: Replication, epoch: int, now: float) -> Any:
        commands = fence(self, epoch, now)
        return commands + (self._promise(now) if self._promised is not None else [])

    patch.setattr(Replication, "_fence", mutant)


def go_on_after_a_promise(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Replication, epoch: int, now: float) -> Any:
        if epoch < max(self.epoch, self.local.fence) or self.local.is_copying:
            return []
        self._promised = epoch
        fence = self.local.write_fence(epoch)
        self.local.fence = epoch - 1  # on disk, and not minded
        return [fence]

    patch.setattr(Replication, "_fence", mutant)


def be_primary_again_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    configure = Replication._configure

    def mutant(self: Replication, configuration: GroupConfiguration, now: float) -> Any:
        return configure(self, msgspec.structs.replace(configuration, incarnation=self._incarnation), now)

    patch.setattr(Replication, "_configure", mutant)


def overlook_divergence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(History, "holds", lambda self, position, last: 0 <= position.number <= last)
    order = Backup.order

    def mutant(self: Backup, message: m.Order, payload: bytes, *, now: float) -> Any:
        if message.previous.number == self._local.handed.number:
            message = msgspec.structs.replace(message, previous=self._local.handed)
        return order(self, message, payload, now=now)

    patch.setattr(Backup, "order", mutant)


# -- committing ----------------------------------------------------------------------------------------


def tell_written_before_all_have_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Peers, written: int) -> int:
        acked = [peer.acked for peer in self.required() if peer.acked is not None]
        return min(written, max(acked, default=written))

    patch.setattr(Peers, "reached", mutant)


def tell_written_before_it_is_ordered(patch: pytest.MonkeyPatch) -> None:
    """And not again when it is."""
    ask, commit = Primary.ask, Primary._commit

    def mutant(self: Primary, writes: Any, *, now: float) -> Any:
        writes = list(writes)
        told = [r.Written([write.token for write in writes])] if writes else []
        return [*told, *ask(self, writes, now=now)]

    def silent(self: Primary) -> Any:
        return [command for command in commit(self) if not isinstance(command, r.Written)]

    patch.setattr(Primary, "ask", mutant)
    patch.setattr(Primary, "_commit", silent)


def go_on_without_the_late(patch: pytest.MonkeyPatch) -> None:
    required = Peers.required

    def mutant(self: Peers) -> list[Peer]:
        return [peer for peer in required(self) if "shrink" not in self._asked_at or peer.acked is not None]

    patch.setattr(Peers, "required", mutant)
    late = Peers.late

    def forget(self: Peers, now: float, *, more_s: float = 0.0) -> list[Replica]:
        found = late(self, now, more_s=more_s)
        for replica in found if not more_s else ():
            self._peers[replica].acked = None
        return found

    patch.setattr(Peers, "late", forget)


def do_not_wait_for_one_that_joins(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Peers) -> list[Peer]:
        return [self._peers[replica] for replica in self.configuration.in_sync if replica != self._me]

    patch.setattr(Peers, "required", mutant)


def admit_one_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Peers, committed: int, ordered: int, now: float) -> Peer | None:
        nodes = {replica.node for replica in self.configuration.in_sync}
        return next((p for p in self._peers.values() if p.acked is not None and p.replica.node not in nodes), None)

    patch.setattr(Peers, "_candidate", mutant)


def ignore_min_copies(patch: pytest.MonkeyPatch) -> None:
    configure = Primary.configure

    def mutant(self: Primary, configuration: GroupConfiguration, *, now: float) -> Any:
        return configure(self, msgspec.structs.replace(configuration, min_copies=1), now=now)

    patch.setattr(Primary, "configure", mutant)


# -- promotion -----------------------------------------------------------------------------------------


def promote_one_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Decider) -> list[Replica]:
        assert self._positions is not None
        positions = self._positions
        return sorted(positions, key=lambda replica: positions[replica])

    patch.setattr(Decider, "choose", mutant)


def start_before_the_tail_is_committed(patch: pytest.MonkeyPatch) -> None:
    commit = Primary._commit

    def mutant(self: Primary) -> Any:
        started = [] if self.is_started else [r.StartMessageManager(self.configuration.epoch)]
        self.is_started = True
        return started + commit(self)

    patch.setattr(Primary, "_commit", mutant)


# -- copying -------------------------------------------------------------------------------------------


def copy_over_orders_already_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guest, "_redone", lambda self, table, low, high, after: [])


def end_a_copy_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guest, "is_consistent", property(lambda self: True))


def miss_the_last_range(patch: pytest.MonkeyPatch) -> None:
    few = [found for found in replicated_ranges() if found[0] < Table.STREAM]
    patch.setattr(guest, "replicated_ranges", lambda: few)


def claim_a_position_while_copying(patch: pytest.MonkeyPatch) -> None:
    begin = LocalStore.begin_copy

    def mutant(self: LocalStore, start: Position, epochs: Any, step: int) -> r.WriteLocal:
        command = begin(self, start, epochs, step)
        self.is_copying = False
        self._claims_after = 0
        return msgspec.structs.replace(command, operations=[])

    patch.setattr(LocalStore, "begin_copy", mutant)


def copy_while_everybody_counts_on_us(patch: pytest.MonkeyPatch) -> None:
    must_copy = Backup.must_copy

    def mutant(self: Backup, message: m.MustCopy, *, now: float) -> Any:
        configuration = self._configuration
        self._configuration = msgspec.structs.replace(configuration, in_sync=())
        commands = must_copy(self, message, now=now)
        self._configuration = configuration
        return commands

    patch.setattr(Backup, "must_copy", mutant)
    fence = Replication._fence

    def promise(self: Replication, epoch: int, now: float) -> Any:
        is_copying, self.local.is_copying = self.local.is_copying, False
        commands = fence(self, epoch, now)
        self.local.is_copying = is_copying
        return commands

    patch.setattr(Replication, "_fence", promise)


def write_a_record_before_its_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackupFiles, "lacks", lambda self, given, operations, host=None, *, now: None)


# -- what once kept a healed group from becoming whole ---------------------------------------------------


def admit_nobody_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """Promoted alone where two copies are needed: nothing is committed, so it does not start, so it admits nobody."""
    advance, ask = Primary.advance, Peers.ask_admit

    def mutant(self: Primary, now: float) -> Any:
        patch.setattr(Peers, "ask_admit", ask if self.is_started else lambda *_, **__: [])
        return advance(self, now)

    patch.setattr(Primary, "advance", mutant)


def a_hand_over_keeps_others_out(patch: pytest.MonkeyPatch) -> None:
    """With too few copies it is never ready."""
    advance, ask = Primary.advance, Peers.ask_admit

    def mutant(self: Primary, now: float) -> Any:
        patch.setattr(Peers, "ask_admit", (lambda *_, **__: []) if self._hands_over else ask)
        return advance(self, now)

    patch.setattr(Primary, "advance", mutant)


def a_lost_store_stays_in_sync(patch: pytest.MonkeyPatch) -> None:
    """It has acknowledged everything, and its group is idle: it is never late."""
    patch.setattr(Primary, "_replaced", lambda self, sender, now: [])


MUTATIONS: dict[Plant, int] = {  # with a seed that is known to catch it: looked at first
    acknowledge_before_durable: 0,
    skip_the_sync: 0,
    orders_overtake_on_a_full_disk: 43,
    a_position_is_noted_too_early: 1,
    accept_a_lower_epoch: 8,
    forget_the_fence_after_a_restart: 91,
    promise_before_it_is_durable: 340,
    go_on_after_a_promise: 17,
    be_primary_again_after_a_restart: 11,
    overlook_divergence: 31,
    tell_written_before_all_have_acknowledged: 0,
    tell_written_before_it_is_ordered: 0,
    go_on_without_the_late: 7,
    do_not_wait_for_one_that_joins: 246,
    admit_one_that_is_behind: 12,
    ignore_min_copies: 7,
    promote_one_that_is_behind: 7,
    start_before_the_tail_is_committed: 13,
    copy_over_orders_already_written: 4,
    end_a_copy_too_early: 2778,
    miss_the_last_range: 4,
    claim_a_position_while_copying: 4,
    copy_while_everybody_counts_on_us: 7,
    write_a_record_before_its_file: 4,
    admit_nobody_before_the_start: 7,
    a_hand_over_keeps_others_out: 54,
    a_lost_store_stays_in_sync: 49,
}


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in (MUTATIONS[plant], *range(SEEDS_MAX)):
        try:
            ReplicaWorld(seed).run()
        except Violation as caught:  # anything else is a plant that no longer fits the code
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {plant.__name__} in {SEEDS_MAX} seeds")
