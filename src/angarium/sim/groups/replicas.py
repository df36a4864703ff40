"""Replicas as far as group services need them: a history that a primary extends and in-sync backups follow.

A write is confirmed when every in-sync replica has it. A replica's disk is told apart from its memory; what it writes
is durable at once. Orders carry the whole history: whoever is behind catches up with the next one, and a replica that
is not in sync takes it as its own.
"""
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from angarium.core.groups import messages as m
from angarium.core.groups.configuration import EMPTY, GroupConfiguration, Position, Replica
from angarium.core.groups.events import FromReplica
from angarium.sim.groups.ledger import History
from angarium.sim.messages import Violation

if TYPE_CHECKING:
    from angarium.sim.groups.node import SimNode

ACK_WITHIN_S = 0.8
REPEAT_S = 0.4


class Order(NamedTuple):
    group: str
    epoch: int
    primary: Replica
    history: History
    is_guest: bool  # for one that is not in sync


class Ack(NamedTuple):
    group: str
    epoch: int
    replica: Replica
    number: int


class SyncAsk(NamedTuple):
    group: str
    epoch: int
    replica: Replica


ReplicaMessage = Order | Ack | SyncAsk


@dataclass(slots=True)
class ReplicaDisk:
    store: bytes
    history: History = ()
    fenced: int = 0  # nothing of this epoch, or a lower one, is accepted
    epoch: int = 0  # the highest seen
    copied: int = 0  # the epoch in which it last took a history as its own

    @property
    def position(self) -> Position:
        return Position(self.history[-1][0], len(self.history)) if self.history else EMPTY


@dataclass(slots=True)
class SimReplica:
    group: str
    node: "SimNode"
    disk: ReplicaDisk
    configuration: GroupConfiguration | None = None
    acked: dict[Replica, tuple[int, float]] = field(default_factory=dict)  # count, when
    guests: set[Replica] = field(default_factory=set)
    required: set[Replica] = field(default_factory=set)  # asked to be admitted in this epoch
    handing_over: bool = False
    again_at: float = 0.0
    asked_at: float = 0.0  # to hand over, last

    @property
    def me(self) -> Replica:
        return Replica(self.node.name, self.disk.store)

    @property
    def is_primary(self) -> bool:
        group = self.configuration
        return (
            group is not None and group.primary == self.me and group.incarnation == self.node.incarnation
            and self.disk.epoch <= group.epoch
        )  # fmt: skip

    def configured(self, group: GroupConfiguration) -> None:
        if self.configuration is not None and group.epoch <= self.configuration.epoch:
            self.configuration = group
            return
        self.configuration = group
        self.disk.epoch = max(self.disk.epoch, group.epoch)
        self.acked = dict.fromkeys(group.in_sync, (0, self.node.now))
        self.required, self.handing_over = set(), False
        self.guests = {guest for guest in self.guests if guest not in group.in_sync}

    # -- work ----------------------------------------------------------------------------------------

    def work(self, number: int | None) -> None:
        """Every now and then. The primary orders `number`, and everybody repeats what may be lost."""
        group = self.configuration
        if group is None or not group.is_formed:
            return
        if self.is_primary:
            if self.disk.fenced < group.epoch and self.node.now - self.asked_at > 1.0:
                self.handing_over = False
            if number is not None and not self.handing_over and self.disk.fenced < group.epoch:
                self.disk.history += ((group.epoch, number),)
            self._send_orders(group)
            self._confirm(group)
            self._ask(group)
        elif self.me not in group.in_sync and self.node.name in group.members and group.primary is not None:
            self.node.send_replica(group.primary.node, SyncAsk(self.group, group.epoch, self.me))

    def _send_orders(self, group: GroupConfiguration) -> None:
        if self.disk.fenced >= group.epoch and not self.handing_over:
            return
        for replica in group.in_sync:
            if replica != self.me:
                order = Order(self.group, group.epoch, self.me, self.disk.history, False)
                self.node.send_replica(replica.node, order)
        for replica in sorted(self.guests):
            order = Order(self.group, group.epoch, self.me, self.disk.history, True)
            self.node.send_replica(replica.node, order)

    def _confirm(self, group: GroupConfiguration) -> None:
        if self.disk.fenced >= group.epoch and not self.handing_over:
            return
        needed = {*group.in_sync, *self.required} - {self.me}
        count = min([len(self.disk.history), *(self.acked.get(r, (0, 0.0))[0] for r in sorted(needed))])
        if count and len(group.in_sync) >= group.min_copies:
            self.node.world.ledger.confirm(self.group, self.disk.history[:count])
        if self.handing_over and count == len(self.disk.history):
            self.disk.fenced = group.epoch
            if self.node.now >= self.again_at:
                self.again_at = self.node.now + REPEAT_S
                self.node.tell(FromReplica(m.HandOverReady(self.group, group.epoch, self.me, self.disk.position)))

    def _ask(self, group: GroupConfiguration) -> None:
        now = self.node.now
        if now < self.again_at or self.disk.fenced >= group.epoch:
            return
        late = [
            replica for replica in [*group.in_sync, *sorted(self.required)]
            if replica != self.me and now - self.acked.get(replica, (0, now))[1] > ACK_WITHIN_S
        ]  # fmt: skip
        if late:
            self.again_at = now + REPEAT_S
            self.node.tell(FromReplica(m.ShrinkAsk(self.group, group.epoch, self.me, tuple(late))))
            return
        if self.handing_over:
            return
        for guest in sorted(self.guests - self.required):
            if self.acked.get(guest, (0, 0.0))[0] == len(self.disk.history) and not self.required:
                self.required.add(guest)
        for guest in sorted(self.required):
            self.again_at = now + REPEAT_S
            self.node.world.ledger.admissions.add((self.group, group.epoch, guest))
            self.node.tell(FromReplica(m.AdmitAsk(self.group, group.epoch, self.me, guest)))

    # -- what others say -------------------------------------------------------------------------------

    def receive(self, message: ReplicaMessage) -> None:
        match message:
            case Order(_, epoch, primary, history, is_guest):
                self._order(epoch, primary, history, is_guest)
            case Ack(_, epoch, replica, number):
                group = self.configuration
                if group is not None and epoch == group.epoch and self.is_primary:
                    before = self.acked.get(replica, (0, 0.0))[0]
                    self.acked[replica] = (max(before, number), self.node.now)
                    self._confirm(group)
            case SyncAsk(_, epoch, replica):
                group = self.configuration
                if group is not None and epoch == group.epoch and self.is_primary and replica not in group.in_sync:
                    self.guests = {guest for guest in self.guests if guest.node != replica.node} | {replica}
                    if replica not in self.acked:
                        self.acked[replica] = (0, self.node.now)

    def _order(self, epoch: int, primary: Replica, history: History, is_guest: bool) -> None:
        disk, group = self.disk, self.configuration
        if epoch <= disk.fenced or epoch < disk.epoch:
            return
        disk.epoch = epoch
        in_sync = group is not None and group.epoch == epoch and self.me in group.in_sync
        if is_guest and in_sync:
            return
        if is_guest and disk.copied != epoch:
            disk.history, disk.copied = history, epoch
        elif len(history) > len(disk.history):
            if history[: len(disk.history)] != disk.history:
                raise Violation("in-sync replicas agree", f"{self.me} has {disk.history}, ordered is {history}")
            disk.history = history
        self.node.send_replica(primary.node, Ack(self.group, epoch, self.me, len(history)))

    def asked(self, message: m.FenceAsk | m.HandOverAsk | m.ChangeRefused) -> None:
        group = self.configuration
        match message:
            case m.FenceAsk(_, epoch, replica):
                if replica == self.me and epoch >= self.disk.epoch:
                    self.disk.fenced = max(self.disk.fenced, epoch)
                    self.handing_over = False
                    answer = m.Fenced(self.group, epoch, self.me, self.disk.position)
                    self.node.tell(FromReplica(answer))
            case m.HandOverAsk(_, epoch, primary):
                if primary == self.me and group is not None and group.epoch == epoch and self.is_primary:
                    self.handing_over, self.asked_at = True, self.node.now
            case m.ChangeRefused():
                pass  # whom we asked to admit stays required until there is another epoch
