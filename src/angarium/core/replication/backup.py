"""Every replica that is not the primary: takes orders, writes them, says so. It sends nothing else.

    Order ──> inbox ──in order, with every value there──> local disk ──durable──> Ack
                │ gap, or a payload that does not come: AskOrders, answered in full from the primary's memory
                └ our last order is not in the primary's history, or too far back: copy the store (guest.py)

- An order is taken only if it follows what we have: `previous` is our own last position, epoch and number. That makes
  what we have a part of the primary's history (history.py), whoever was primary when it was ordered.
- Until the primary has said in the present epoch that it knows us, nothing is acknowledged. `Hello` asks for it.
- What is not known to be on every in-sync disk is kept in memory with its content: if we are promoted, others may lack
  it.
- A copy destroys what is here. It is not begun while the configuration still counts on us.
"""
from collections.abc import Callable
from dataclasses import dataclass

from angarium.core.groups.configuration import GroupConfiguration, Position, Replica
from angarium.core.replication.events import Command, RangeRead, ReplicationSettings, SendTo
from angarium.core.replication.files import BackupFiles, FileMessage
from angarium.core.replication.guest import Guest
from angarium.core.replication.history import NOWHERE
from angarium.core.replication.local import LocalStore
from angarium.core.replication.messages import (
    Ack,
    AskOrders,
    FileBlock,
    FileGone,
    Hello,
    MustCopy,
    Order,
    PutThere,
    RangeLater,
    RangePart,
    RangeSame,
    Welcome,
    unpack_writes,
)
from angarium.core.replication.payloads import Payloads
from angarium.core.replication.window import Ordered, Window, operations_bytes
from angarium.core.report import Level, Report
from angarium.core.storage import Operation
from angarium.core.stream.events import FileSynced, FileWritten


@dataclass(frozen=True, slots=True)
class _Early:
    """An order that was heard and is not yet written."""

    previous: Position
    position: Position
    operations: list[Operation | PutThere]
    is_whole: bool  # nothing is only referred to
    size_bytes: int
    since: float


class Backup:
    def __init__(
        self, me: Replica, settings: ReplicationSettings, local: LocalStore, window: Window, payloads: Payloads,
        files: BackupFiles, configuration: GroupConfiguration, next_token: Callable[[], int], committed: int,
    ) -> None:  # fmt: skip
        self.committed = committed
        self.is_welcome = False  # the primary knows where we are, and that it is a part of its history
        self.guest: Guest | None = None
        self._files = files
        self._me = me
        self._settings = settings
        self._local = local
        self._window = window
        self._payloads = payloads
        self._next_token = next_token
        self._inbox: dict[int, _Early] = {}
        self.inbox_bytes = 0
        self._configuration = configuration
        self._last = 0  # the primary's last order, as far as we have heard
        self._acked = -1
        self._hello_at: float | None = None
        self._asked: tuple[Position, float] | None = None  # for orders after this one, when
        self._is_missing = False  # the next order refers to a payload that is not here

    @property
    def _primary(self) -> Replica:
        assert self._configuration.primary is not None
        return self._configuration.primary

    def configure(self, configuration: GroupConfiguration, *, now: float) -> list[Command]:
        self._configuration = configuration
        self.is_welcome = False
        self._files.configure(is_in_sync=self._me in configuration.in_sync, now=now)
        self._drop_inbox()
        self._last, self._acked = 0, -1
        self._hello_at = self._asked = None
        self._is_missing = False
        if self.guest is not None:
            self.guest.give_up_host()
        return self._pull(now)

    # -- hello -----------------------------------------------------------------------------------------

    def _hello_due(self) -> float | None:
        """When we have to say it next. Our position has to be what is on the disk: nothing may be on its way there."""
        is_hostless = self.guest is not None and self.guest.host is None
        if self.is_welcome and not is_hostless:
            return None
        if not self._local.is_copying and not self._local.is_settled:
            return None
        return 0.0 if self._hello_at is None else self._hello_at + self._settings.ask_again_s

    def _hello(self, now: float) -> list[Command]:
        due = self._hello_due()
        if due is None or now < due:
            return []
        self._hello_at = now
        is_copying, avoid = self._local.is_copying, None
        if is_copying:
            avoid = self.guest.give_up_host() if self.guest is not None else None
        hello = Hello(self._configuration.group, self._configuration.epoch, self._position(), is_copying, avoid)
        return [SendTo(self._primary, hello)]

    def _position(self) -> Position:
        """Where we are, as the primary is told."""
        is_consistent = not self._local.is_copying or (self.guest is not None and self.guest.is_consistent)
        return self._local.handed if is_consistent else NOWHERE

    def welcome(self, message: Welcome, *, now: float) -> list[Command]:
        self.is_welcome = True
        self._note_progress(message.committed, message.last)
        commands: list[Command] = []
        if self.guest is not None and self.guest.host is None and message.host is not None:
            commands += self.guest.resume(self._configuration, message.host)
        return [*commands, *self._ack(), *self._go_on(now)]

    def must_copy(self, message: MustCopy, *, now: float) -> list[Command]:
        if self._me in self._configuration.in_sync:
            return []  # the configuration counts on what we have; the primary asks for one that does not
        if message.after not in (None, self._local.handed, self._position()):
            if self.guest is not None:
                return []
            self.is_welcome = False  # late, of what we had before: we may be counted on by now, and not know it yet
            return self._hello(now)
        self._drop_inbox()
        self._asked = None
        self._is_missing = False
        self._note_progress(0, message.start.number)
        self.is_welcome = True
        self.guest = Guest(
            self._settings, self._local, self._window, self._configuration, self._next_token, self._range_lacks
        )
        text = f"group {message.group!r}: copying from {message.host}, since {message.reason}"
        return [Report(Level.INFO, "replica-copies", text), *self.guest.begin(message)]

    def _lost(self, now: float) -> list[Command]:
        """What the primary orders does not follow what we have."""
        self.is_welcome = False
        self._drop_inbox()
        self._asked = None
        self._is_missing = False
        return self._hello(now)

    # -- orders ----------------------------------------------------------------------------------------

    def order(self, message: Order, payload: bytes, *, now: float) -> list[Command]:
        handed, previous = self._local.handed, message.previous
        for write, operations in zip(message.writes, unpack_writes(message.writes, payload), strict=True):
            position = Position(write.epoch, previous.number + 1)
            if position.number == handed.number and position != handed:
                return self._lost(now)
            self._keep(previous, position, operations, now)
            previous = position
        if message.previous.number == handed.number and message.previous != handed:
            return self._lost(now)
        if not self.is_welcome and self._hello_at is not None and now >= self._hello_at + self._settings.fetch_after_s:
            self._hello_at = None  # the primary is there: it may not have been when we said hello
        if self.is_welcome or message.previous.number <= handed.number <= previous.number:
            self._note_progress(message.committed, message.last)
        return self._go_on(now)

    def _keep(
        self, previous: Position, position: Position, operations: list[Operation | PutThere], now: float
    ) -> None:
        number = position.number
        if number <= self._local.handed.number:
            return
        is_whole = not any(isinstance(operation, PutThere) for operation in operations)
        known = self._inbox.get(number)
        if known is not None and (known.is_whole or not is_whole):
            return
        plain = [operation for operation in operations if not isinstance(operation, PutThere)]
        size_bytes = operations_bytes(plain) + 64 * (len(operations) - len(plain))
        is_next = number == self._local.handed.number + 1
        if self.inbox_bytes + size_bytes > self._settings.inbox_bytes_max and not is_next:
            return  # it is asked for when its turn comes
        if known is not None:
            self.inbox_bytes -= known.size_bytes
        self._inbox[number] = _Early(previous, position, operations, is_whole, size_bytes, now)
        self.inbox_bytes += size_bytes

    def _drop_inbox(self) -> None:
        self._inbox.clear()
        self.inbox_bytes = 0

    def _note_progress(self, committed: int, last: int) -> None:
        self.committed = max(self.committed, committed)
        self._last = max(self._last, last)

    def payload_came(self, *, now: float) -> list[Command]:
        return self._go_on(now) if self._is_missing else []

    def _go_on(self, now: float) -> list[Command]:
        """Write what can be written, ask for what is missing."""
        commands: list[Command] = []
        while (orders := self._next_orders(commands, now)) is not None:
            if not orders:
                return [*commands, *self._lost(now)]
            self._window.append(orders)
            commands.append(self._local.write_orders(orders))
        self._window.trim(self.committed)
        if self.guest is not None:
            commands += self.guest.end_if_complete()
        return commands + self._pull(now)

    def _next_orders(self, commands: list[Command], now: float) -> list[Ordered] | None:
        """For one local write; None if there is nothing to write, empty if what comes next does not follow."""
        orders: list[Ordered] = []
        last, total, settings = self._local.handed, 0, self._settings
        while (early := self._inbox.get(last.number + 1)) is not None:
            if total and total + early.size_bytes > settings.batch_bytes_max:
                break
            if self._local.unwritten_bytes + total > settings.inbox_bytes_max:
                break  # the local disk is behind
            if early.previous != last:
                return orders
            operations = self._payloads.resolve(early.operations)
            if operations is None:
                self._is_missing = True
                break
            if (lacking := self._lacks(operations, now)) is not None:
                commands += lacking
                break
            del self._inbox[early.position.number]
            self.inbox_bytes -= early.size_bytes
            size_bytes = operations_bytes(operations)
            orders.append(Ordered(early.position, operations, size_bytes))
            total += size_bytes
            last = early.position
            self._is_missing = False
        return orders or None

    def _lacks(self, operations: list[Operation], now: float) -> list[Command] | None:
        return self._files.lacks(self._configuration, operations, now=now)

    def _range_lacks(self, operations: list[Operation], now: float) -> list[Command] | None:
        host = self.guest.host if self.guest is not None else None
        return self._files.lacks(self._configuration, operations, None if host == self._primary else host, now=now)

    def _ask_due(self) -> float | None:
        """When we have to ask for what we lack and nobody will send by itself."""
        handed, settings = self._local.handed, self._settings
        if not self.is_welcome or self._last <= handed.number:
            return None
        if self._local.unwritten_bytes > settings.inbox_bytes_max:
            return None  # the local disk is behind
        due = 0.0
        if (early := self._inbox.get(handed.number + 1)) is not None:
            if not self._is_missing:
                return None
            due = early.since + settings.fetch_after_s
        if self._asked is not None and self._asked[0] == handed:
            due = max(due, self._asked[1] + settings.ask_again_s)
        return due

    def _pull(self, now: float) -> list[Command]:
        commands = self._hello(now)
        due = self._ask_due()
        if due is None or now < due:
            return commands
        self._asked = (self._local.handed, now)
        ask = AskOrders(self._configuration.group, self._configuration.epoch, self._local.handed)
        return [*commands, SendTo(self._primary, ask)]

    # -- the local disk --------------------------------------------------------------------------------

    def landed(self, step: int, *, now: float) -> list[Command]:
        """Orders are durable, or a step of copying is."""
        commands: list[Command] = []
        if self.guest is not None and step:
            commands += self.guest.landed(step)
            if self.guest.is_done:
                self.guest = None
                self.is_welcome = False  # the primary is to hear where we are
                self._hello_at = None
        return [*commands, *self._ack(), *self._go_on(now)]

    def _ack(self) -> list[Command]:
        """Tell what is durable, once the primary knows us."""
        written = self._local.written.number
        if not self.is_welcome or self._local.is_copying or written <= self._acked:
            return []
        self._acked = written
        return [SendTo(self._primary, Ack(self._configuration.group, self._configuration.epoch, written))]

    # -- files of large messages -----------------------------------------------------------------------

    def file_message(self, message: FileMessage, payload: bytes, *, now: float) -> list[Command]:
        commands = self._files.message(self._configuration, message, payload, now=now)
        return commands + self._files_changed(now)

    def file_of_host(
        self, sender: Replica, message: FileBlock | FileGone, payload: bytes, *, now: float
    ) -> list[Command]:
        commands = self._files.from_host(self._configuration, sender, message, payload, now=now)
        return commands + self._files_changed(now)

    def file_answered(self, event: FileWritten | FileSynced, *, now: float) -> list[Command]:
        commands = self._files.answered(self._configuration, event, now=now)
        return commands + self._files_changed(now)

    def _files_changed(self, now: float) -> list[Command]:
        """What waits for a file may go on."""
        held = [] if self.guest is None else self.guest.files_came(now=now)
        return held + self._go_on(now)

    # -- copying ---------------------------------------------------------------------------------------

    def range_read(self, event: RangeRead, *, now: float) -> list[Command]:
        return [] if self.guest is None else self.guest.range_read(event, now=now)

    def range_answered(
        self, sender: Replica, message: RangeSame | RangePart | RangeLater, payload: bytes, *, now: float
    ) -> list[Command]:
        return [] if self.guest is None else self.guest.answered(sender, message, payload, now=now)

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, *, now: float) -> list[Command]:
        commands: list[Command] = []
        if self.guest is not None:
            if self.guest.is_late(now):
                self.is_welcome = False
                self._hello_at = None
            else:
                commands += self.guest.tick(now=now)
        return [*commands, *self._files.tick(self._configuration, now=now), *self._go_on(now)]

    def deadline(self) -> float | None:
        times = [self._hello_due(), self._ask_due(), self._files.deadline()]
        times.append(None if self.guest is None else self.guest.deadline())
        return min((at for at in times if at is not None), default=None)
