"""The primary of a replica group: gives the message manager's writes their order, and waits until they are everywhere.

    Write --waiting--> ordered: number n --local disk, and every in-sync backup's--> committed: Written
             │                     └ SendOrder: one message for many
             ├ patience: alone, for a moment
             ├ the window is full, the local disk is full (then what makes room goes first), too few copies
             └ not yet started: what earlier epochs have left is committed first

- Only what is ordered has a number, and every disk writes in the order of numbers. What overtakes on a full disk does
  so before it is ordered; so no store ever claims what it does not contain.
- A write is committed when the local disk and every required backup have it. Required are those of the configuration,
  and one that is asked to be admitted, from the moment of asking: the decision may hold long before we hear of it.
- A backup that is late is not left out by us: group services are asked, and only their new configuration lets us go on.
- Nothing is committed while the configuration has fewer in-sync replicas than `min_copies`.
"""
from collections import deque
from collections.abc import Iterable

from angarium.core.destination.events import Write, WritesBlocked, WritesUnblocked
from angarium.core.destination.overtaking import overtaking
from angarium.core.groups.configuration import EMPTY, GroupConfiguration, Position, Replica
from angarium.core.groups.messages import HandOverReady
from angarium.core.replication.events import (
    Command,
    ReplicationSettings,
    SendOrder,
    SendTo,
    StartMessageManager,
    ToGroups,
    ToManager,
    Written,
)
from angarium.core.replication.files import LocalFiles, PrimaryFiles
from angarium.core.replication.local import LocalStore
from angarium.core.replication.messages import (
    AskOrders,
    Hello,
    MustCopy,
    Order,
    OrderedWrite,
    Reference,
    Welcome,
    pack_operations,
)
from angarium.core.replication.payloads import Payloads
from angarium.core.replication.peers import Peer, Peers
from angarium.core.replication.window import Ordered, Window, operations_bytes

UNDECIDED_S = 2.0  # with a majority of the voters, who is late is taken out sooner


class Primary:
    def __init__(
        self, me: Replica, settings: ReplicationSettings, local: LocalStore, window: Window, payloads: Payloads,
        files: LocalFiles, committed: int, disk_reason: str,
    ) -> None:  # fmt: skip
        self.committed = committed
        self.unwritten_bytes = 0  # waiting, and not committed: what a driver holds its clients back for
        self.freeing_bytes = 0  # of those that wait, what makes room
        self.is_started = False
        self.peers = Peers(me, settings)
        self.files = PrimaryFiles(settings, files, self.peers, payloads)
        self._me = me
        self._settings = settings
        self._local = local
        self._window = window
        self._payloads = payloads
        self._start = local.handed.number  # what was there before us: committed before anything new
        self._waiting: deque[tuple[Write, int]] = deque()  # write, bytes
        self._waiting_bytes = 0
        self._patient_until: float | None = None
        self._uncommitted: deque[tuple[int, int, int]] = deque()  # number, token, bytes
        self._uncommitted_bytes = 0
        self._heartbeat_at = 0.0
        self._disk_reason = disk_reason
        self._is_crowded = False
        self._blocked = ""  # as the message manager was told
        self._overdue: list[Replica] = []  # backups that group services were asked in vain to take out
        self._hands_over = False

    @property
    def configuration(self) -> GroupConfiguration:
        return self.peers.configuration

    def configure(self, configuration: GroupConfiguration, *, now: float) -> list[Command]:
        """The first time, and whenever we stay primary in the next epoch."""
        self.peers.configure(configuration, now=now)
        self.files.excuse(now)
        self._hands_over = False
        self._heartbeat_at = now + self._settings.heartbeat_s
        # An empty order: whoever hears it knows that we are here.
        return [*self._order([]), *self.files.advance_all(now=now), *self.advance(now)]

    # -- the message manager -------------------------------------------------------------------------

    def ask(self, writes: Iterable[Write], *, now: float) -> list[Command]:
        is_urgent = False
        for write in writes:
            size_bytes = operations_bytes(write.operations)
            self._waiting.append((write, size_bytes))
            self._waiting_bytes += size_bytes
            self.unwritten_bytes += size_bytes
            if write.freeing:
                self.freeing_bytes += size_bytes
            is_urgent |= not write.patient
        if is_urgent or self._waiting_bytes > self._settings.batch_bytes_max:
            self._patient_until = None
        elif self._patient_until is None and self._waiting:
            self._patient_until = now + self._settings.patience_s
        return self.advance(now)

    def disk_blocked(self, reason: str, *, now: float) -> list[Command]:
        self._disk_reason = reason
        return self.advance(now)

    def _reason(self) -> tuple[str, str]:
        """Code and reason why nothing can be confirmed; empty if it can."""
        configuration = self.configuration
        have, need = len(configuration.in_sync), configuration.min_copies
        if have < need:
            reason = f"group {configuration.group!r} has {have} of min_copies {need} in sync; bring replicas back"
            return "too-few-copies", reason
        if self._disk_reason:
            return "disk-full", self._disk_reason
        if overdue := [replica.node for replica in self._overdue if replica in configuration.in_sync]:
            nodes = ", ".join(overdue)
            reason = f"group {configuration.group!r} waits for {nodes}: no majority of the voters says that it need not"
            return "copies-behind", reason
        limit = self._settings.waiting_bytes_max
        self._is_crowded = self._waiting_bytes > (limit // 2 if self._is_crowded else limit)
        if self._is_crowded:
            what = f"more than waiting_bytes_max {limit:,} wait for the replicas' disks"
            return "copies-behind", f"group {configuration.group!r}: {what}"
        return "", ""

    def _tell_blocked(self) -> list[Command]:
        code, reason = self._reason()
        if reason == self._blocked or not self.is_started:
            return []
        self._blocked = reason
        return [ToManager(WritesBlocked(reason, code) if reason else WritesUnblocked())]

    # -- ordering --------------------------------------------------------------------------------------

    def _next_batch(self) -> list[tuple[Write, int]]:
        """The writes that get their numbers now."""
        configuration, settings = self.configuration, self._settings
        if not self.is_started or self._hands_over or len(configuration.in_sync) < configuration.min_copies:
            return []
        if self._patient_until is not None:
            return []
        candidates: Iterable[tuple[Write, int]] = self._waiting
        if self._disk_reason:
            going = {write.token for write in overtaking(write for write, _ in self._waiting)}
            candidates = [item for item in self._waiting if item[0].token in going]
        batch: list[tuple[Write, int]] = []
        total, room = 0, settings.window_bytes_max - self._uncommitted_bytes
        ahead = settings.ahead_bytes_max - self._local.unwritten_bytes
        for item in candidates:
            total += item[1]
            if (batch or self._uncommitted) and (total > room or (batch and total > settings.batch_bytes_max)):
                break
            if (batch or not self._local.is_settled) and total > ahead and not item[0].freeing:
                break
            if len(self._uncommitted) + len(batch) >= settings.window_orders_max:
                break
            batch.append(item)
        return batch

    def _order_waiting(self, now: float) -> list[Command]:
        commands: list[Command] = []
        if self._patient_until is not None and now >= self._patient_until:
            self._patient_until = None
        while batch := self._next_batch():
            if len(batch) == len(self._waiting):
                self._waiting.clear()
            elif batch[0] is self._waiting[0] and batch[-1] is self._waiting[len(batch) - 1]:
                for _ in batch:
                    self._waiting.popleft()
            else:
                going = {id(item) for item in batch}
                self._waiting = deque(item for item in self._waiting if id(item) not in going)
            orders: list[Ordered] = []
            number = self._local.handed.number
            for write, size_bytes in batch:
                number += 1
                orders.append(Ordered(Position(self.configuration.epoch, number), write.operations, size_bytes))
                self._uncommitted.append((number, write.token, size_bytes))
                self._uncommitted_bytes += size_bytes
                self._waiting_bytes -= size_bytes
                if write.freeing:
                    self.freeing_bytes -= size_bytes
            commands += self._order(orders)
        if not self._waiting:
            self._patient_until = None
        return commands

    def _order(self, orders: list[Ordered]) -> list[Command]:
        previous = self._window.last
        commands: list[Command] = []
        if orders:
            self._window.append(orders)
            commands.append(self._local.write_orders(orders))
        if len(self.configuration.members) > 1:
            message, payload = self._packed(previous, orders, self._payloads.references)
            commands.append(SendOrder(message, payload))
        return commands

    def _packed(
        self, previous: Position, orders: Iterable[Ordered], references: dict[int, Reference]
    ) -> tuple[Order, bytes]:
        payload: list[bytes] = []
        writes = [
            OrderedWrite(order.position.epoch, pack_operations(order.operations, references, payload))
            for order in orders
        ]
        configuration, last = self.configuration, self._window.last.number
        message = Order(configuration.group, configuration.epoch, previous, self.committed, last, writes)
        return message, b"".join(payload)

    # -- committing ------------------------------------------------------------------------------------

    def landed(self, *, now: float) -> list[Command]:
        """The local disk has more."""
        self.peers.mark(self._local.written.number, self.committed, now=now)
        return self.advance(now)

    def advance(self, now: float) -> list[Command]:
        """Whatever follows from what has changed."""
        commands = self._commit()
        commands += self._order_waiting(now)
        commands += self._tell_blocked()
        if not self._is_ready_to_hand_over:
            # Before the start we do not know what was confirmed: at most what we have.
            confirmed = max(self.committed, self._start)
            commands += self.peers.ask_admit(confirmed, self._local.handed.number, now=now)
        return commands + self._hand_over_if_ready(now)

    def _commit(self) -> list[Command]:
        configuration = self.configuration
        reached = self.peers.reached(self._local.written.number)
        if len(configuration.in_sync) < configuration.min_copies or reached < self.committed:
            return []
        self.committed = reached
        self._window.trim(reached)
        commands: list[Command] = []
        if not self.is_started and reached >= self._start:
            self.is_started = True
            commands.append(StartMessageManager(configuration.epoch))
        tokens: list[int] = []
        while self._uncommitted and self._uncommitted[0][0] <= reached:
            _, token, size_bytes = self._uncommitted.popleft()
            tokens.append(token)
            self._uncommitted_bytes -= size_bytes
            self.unwritten_bytes -= size_bytes
        if tokens:
            commands.append(Written(tokens))
        return commands

    def acked(self, sender: Replica, number: int, *, now: float) -> list[Command]:
        peer = self.peers.find(sender)
        if peer is None or peer.acked is None or number <= peer.acked or number > self._local.handed.number:
            return []
        peer.acked = number
        return self.advance(now)

    # -- those who come back ---------------------------------------------------------------------------

    def hello(self, sender: Replica, message: Hello, *, now: float) -> list[Command]:
        configuration = self.configuration
        peer = self.peers.met(sender, now=now)
        if peer is None:
            return []
        if not self._can_serve(message.position) or self._is_new(peer, message):
            return self._must_copy(peer, message.position, message.avoid, now) + self._replaced(sender, now)
        last = self._window.last.number
        host = self.peers.host(sender, message.avoid) if message.is_copying else None
        welcome = SendTo(
            sender, Welcome(configuration.group, configuration.epoch, self.committed, last, host)
        )
        if message.is_copying:
            peer.acked = None
            return [welcome]
        peer.acked = max(message.position.number, peer.acked or 0)
        return [welcome, *self._replaced(sender, now), *self.advance(now)]

    def _replaced(self, sender: Replica, now: float) -> list[Command]:
        """A node that has come back with another store has lost the one that was in sync."""
        in_sync = self.configuration.in_sync
        lost = [other for other in in_sync if other.node == sender.node and other not in (sender, self._me)]
        return self.peers.ask_shrink(lost, now=now)

    def ask_orders(self, sender: Replica, message: AskOrders, *, now: float) -> list[Command]:
        peer = self.peers.find(sender)
        if peer is None:
            return []  # it has to say hello first
        if not self._can_serve(message.after):
            return self._must_copy(peer, message.after, None, now)
        orders: list[Ordered] = []
        total = 0
        for order in self._window.after(message.after.number):
            total += order.size_bytes
            if orders and total > self._settings.batch_bytes_max:
                break
            orders.append(order)
        packed, payload = self._packed(message.after, orders, {})
        return [SendTo(sender, packed, payload)]

    def _can_serve(self, position: Position) -> bool:
        last = self._window.last.number
        return self._local.history.holds(position, last) and self._window.reaches(position.number)

    def _is_new(self, peer: Peer, message: Hello) -> bool:
        """It has nothing, and there is more than one step of a copy, or content of very large messages: a backup can
        tell it, compressed, and what was settled long ago not at all, while our memory has every order, and is for
        those who were away for a moment."""
        is_empty = message.position == EMPTY and not message.is_copying
        is_counted_on = peer.is_joining or peer.replica in self.configuration.in_sync
        is_much = self._window.size_bytes > self._settings.range_bytes or self.files.has_any
        return is_empty and not is_counted_on and is_much

    def _must_copy(self, peer: Peer, position: Position, avoid: Replica | None, now: float) -> list[Command]:
        configuration, last = self.configuration, self._window.last
        peer.acked = None
        what = "is not part of the group's history"
        if self._local.history.holds(position, last.number):
            what = "is more than one that is new is told" if self._can_serve(position) else "is no longer in memory"
        reason = f"what follows {position.epoch}/{position.number} {what}"
        epochs = self._local.history.epochs
        copy = MustCopy(
            configuration.group, configuration.epoch, self.peers.host(peer.replica, avoid), last, list(epochs), reason,
            position,
        )  # fmt: skip
        commands: list[Command] = [SendTo(peer.replica, copy)]
        if peer.replica in configuration.in_sync:
            commands += self.peers.ask_shrink([peer.replica], now=now)
        return commands

    # -- handing over --------------------------------------------------------------------------------------

    def hand_over(self, *, now: float) -> list[Command]:
        """Order nothing more; say so when all is committed."""
        self._hands_over = True
        return self.advance(now)

    @property
    def _is_ready_to_hand_over(self) -> bool:
        return self._hands_over and self.committed == self._local.handed.number

    def _hand_over_if_ready(self, now: float) -> list[Command]:
        configuration = self.configuration
        if not self._is_ready_to_hand_over or not self.peers.may_ask("hand over", now):
            return []
        ready = HandOverReady(configuration.group, configuration.epoch, self._me, self._local.written)
        return [ToGroups(ready)]

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, *, now: float) -> list[Command]:
        commands: list[Command] = []
        if now >= self._heartbeat_at:
            if now >= self._heartbeat_at + self._settings.ack_within_s / 2:
                # We stood still ourselves: what our peers have answered meanwhile is yet to be heard. Accuse nobody.
                self.peers.excuse(now)
                self.files.excuse(now)
            self._heartbeat_at = now + self._settings.heartbeat_s
            commands += self._order([])
            reminders, late = self.files.tick(now=now)
            commands += reminders + self.peers.ask_shrink(late, now=now)
        commands += self.peers.ask_shrink(self.peers.late(now), now=now)
        self._overdue = self.peers.late(now, more_s=UNDECIDED_S)
        return commands + self.advance(now)

    def deadline(self) -> float:
        if self._patient_until is not None and self._waiting and self.is_started:
            return min(self._heartbeat_at, self._patient_until)
        return self._heartbeat_at
