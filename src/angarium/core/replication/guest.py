"""Copying a store from a host while orders go on: the side that copies.

    begin: note that the store has no position ──> range by range: ──> end: all ranges are as of one order: note it
           read our own ──> ask the host, unless it has the same ──> write what it has
                └──── a step that is not answered: once more, then another host ◄──┘

Orders are taken all the time, as by every backup. A range that the host has read at order m is written together with
what the orders after m, which are already written here, have done to that range; so everything below the cursor is as
of our last order. That works since operations say what is there afterwards, whatever was before: repeated in order,
they lead to the same. For the same reason m need not be known exactly: the host's positions before and after it read
are enough. The copy is complete once our last order is at least the latest that any host has read at.

So a copy needs no more memory than one step and the window of recent orders, and may take as long as it takes. One that
is begun anew (a crash, a diverged history) finds most ranges equal by their digests.
"""
from collections.abc import Callable

from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.replication.events import Command, RangeRead, ReadRange, ReplicationSettings, SendTo
from angarium.core.replication.local import LocalStore
from angarium.core.replication.messages import MustCopy, RangeAsk, RangeLater, RangePart, RangeSame
from angarium.core.replication.ranges import clip, replicated_ranges, unpack_items
from angarium.core.replication.window import Window
from angarium.core.report import Level, Report
from angarium.core.storage import DeleteRange, Operation, Put, Table

TOLD_EVERY_S = 5.0
ASKS_MAX = 2  # of one host for one step: a lost message is not a lost host
# What to do about files that these operations name and that are not here yet; None if there is no such one.
Lacks = Callable[[list[Operation], float], list[Command] | None]


class Guest:
    def __init__(
        self, settings: ReplicationSettings, local: LocalStore, window: Window, configuration: GroupConfiguration,
        next_token: Callable[[], int], lacks: Lacks,
    ) -> None:  # fmt: skip
        self.is_done = False
        self.host: Replica | None = None  # None: it did not answer, and nobody else is named yet
        self._settings = settings
        self._local = local
        self._window = window
        self._configuration = configuration
        self._next_token = next_token
        self._ranges = replicated_ranges()
        self._index = 0
        self._low = self._ranges[0][1]
        self._step = 0  # what is waited for: a local write, a read, an answer
        self._is_writing = False
        self._is_ending = False
        self._asked: RangeAsk | None = None
        self._asked_at = 0.0
        self._asks = 0
        self._again_at: float | None = None  # the host has asked for patience until then
        self._lacks = lacks
        self._held: tuple[Replica, RangePart, bytes] | None = None  # waits for files
        self._complete_at = 0  # a host has read at this order, or before it
        self._copied_bytes = 0
        self._rows_passed = 0  # copied, or found equal
        self._rows_whole = 0  # of the host, about
        self._told_at: float | None = None

    @property
    def percent(self) -> int:
        """How much of the host's rows is passed, about; never all before the copy is done."""
        return min(99, self._rows_passed * 100 // max(self._rows_whole, 1))

    @property
    def is_consistent(self) -> bool:
        """What is below the cursor is as of our last order, and of nothing later."""
        return self._local.handed.number >= self._complete_at

    def begin(self, message: MustCopy) -> list[Command]:
        self.host = message.host
        self._window.clear(message.start)
        self._step = self._next_token()
        self._is_writing = True
        return [self._local.begin_copy(message.start, message.history, self._step)]

    def resume(self, configuration: GroupConfiguration, host: Replica) -> list[Command]:
        """In another epoch, or with another host; what was copied so far is good."""
        self._configuration, self.host = configuration, host
        self._asked = self._again_at = self._held = None
        return [] if self._is_writing or self._is_ending else self._go_on()

    # -- steps -----------------------------------------------------------------------------------------

    def _go_on(self) -> list[Command]:
        while self._index < len(self._ranges):
            table, _, high = self._ranges[self._index]
            if self._low < high:
                self._step = self._next_token()
                return [ReadRange(self._step, table, self._low, high, self._settings.range_bytes, b"", False)]
            self._index += 1
            if self._index < len(self._ranges):
                self._low = self._ranges[self._index][1]
        return self.end_if_complete()

    def end_if_complete(self) -> list[Command]:
        """To be called whenever orders were written."""
        if self._index < len(self._ranges) or self._is_writing or self._is_ending or not self.is_consistent:
            return []
        self._is_ending = True
        self._step = self._next_token()
        return [self._local.end_copy(self._step)]

    def landed(self, step: int) -> list[Command]:
        if step != self._step:
            return []
        self._is_writing = False
        if self._is_ending:
            self.is_done = True
            return []
        return self._go_on()

    def range_read(self, event: RangeRead, *, now: float) -> list[Command]:
        """What we have ourselves."""
        if event.token != self._step or self._is_writing:
            return []
        self._asked = RangeAsk(
            self._configuration.group, self._configuration.epoch, self._step, self._ranges[self._index][0],
            self._low, event.high, event.digest, self._window.base.number,
        )  # fmt: skip
        self._asks = 0
        return self._ask(now)

    def _ask(self, now: float) -> list[Command]:
        """The same again is the same: the host remembers nothing, and of several answers one is taken."""
        assert self._asked is not None
        self._again_at = None
        self._asked_at = now
        self._asks += 1
        return [] if self.host is None else [SendTo(self.host, self._asked)]

    def answered(
        self, sender: Replica, message: RangeSame | RangePart | RangeLater, payload: bytes, *, now: float
    ) -> list[Command]:
        asked = self._asked
        if asked is None or self._held is not None or sender != self.host or message.request != asked.request:
            return []
        if isinstance(message, RangeLater):
            self._again_at = now + self._settings.heartbeat_s
            self._asks = 0
            return []
        if not self._window.reaches(message.before) and message.before < self._window.base.number:
            self._asked = self._again_at = None
            return self._go_on()  # the orders since then are no longer in memory: once more
        operations: list[Operation] = []
        high = asked.high
        if isinstance(message, RangePart):
            high = message.high
            operations.append(DeleteRange(asked.table, asked.low, high))
            operations += [Put(asked.table, key, value) for key, value in unpack_items(payload)]
            if (lacking := self._lacks(operations, now)) is not None:
                self._held = (sender, message, payload)
                return lacking
        operations += self._redone(asked.table, asked.low, high, message.before)
        self._copied_bytes += len(payload)
        self._rows_passed += message.rows
        self._rows_whole = message.whole
        self._complete_at = max(self._complete_at, message.after)
        self._asked = self._again_at = None
        self._low = high
        self._is_writing = True
        self._step = self._next_token()
        return [self._local.write_range(operations, self._step), *self._progress(now)]

    def _progress(self, now: float) -> list[Command]:
        """For people."""
        if self._told_at is None:
            self._told_at = now
        if now < self._told_at + TOLD_EVERY_S:
            return []
        self._told_at = now
        table, _, _ = self._ranges[self._index]
        where = f"table {self._index + 1} of {len(self._ranges)} ({table.name})"
        came = f"{self._copied_bytes / 1e6:,.1f} MB came, compressed"
        text = f"group {self._configuration.group!r}: {self.percent} % of the rows, {where}, {came}"
        return [Report(Level.INFO, "synchronising", text)]

    def files_came(self, *, now: float) -> list[Command]:
        if self._held is None:
            return []
        held, self._held = self._held, None
        return self.answered(*held, now=now)

    def _redone(self, table: Table, low: bytes, high: bytes, after: int) -> list[Operation]:
        """What the orders after that one, as far as they are written here, have done to the range."""
        if after >= self._local.handed.number:
            return []
        orders = self._window.after(after)
        return [operation for order in orders for operation in clip(order.operations, table, low, high)]

    # -- time ------------------------------------------------------------------------------------------

    def _answer_due(self) -> float | None:
        if self._asked is None or self._held is not None:
            return None
        return self._asked_at + self._settings.range_within_s / ASKS_MAX

    def is_late(self, now: float) -> bool:
        """The host does not answer."""
        due = self._answer_due()
        return due is not None and now >= due and self._asks >= ASKS_MAX

    def give_up_host(self) -> Replica | None:
        host, self.host = self.host, None
        self._asked = self._again_at = self._held = None
        return host

    def tick(self, *, now: float) -> list[Command]:
        at = self.deadline()
        return self._ask(now) if at is not None and now >= at else []

    def deadline(self) -> float | None:
        due = self._answer_due()
        return due if due is None or self._again_at is None else min(due, self._again_at)
