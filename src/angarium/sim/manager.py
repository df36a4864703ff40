"""One start of a message manager in virtual time, on its disk: what a broker loses, and gets again, when it dies alone.

What was on its way to or from a manager that is dead is void: nobody tells it anything any more.
"""
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from angarium.core.destination import events as mm
from angarium.core.destination.message_manager import MessageManager
from angarium.core.destination.restoring import StoredState
from angarium.core.stream.events import FileEvent
from angarium.core.stream.table import held_streams
from angarium.core.wire.frames import Frame
from angarium.sim.clock import Clock
from angarium.sim.disk import SimDisk
from angarium.sim.trace import Trace
from angarium.store.interface import Damaged, Store

if TYPE_CHECKING:
    from angarium.sim.broker import BrokerSettings, Witness


class SimManager:
    """`enter` brings an action into the process, in its turn; `answer` is the way to the client manager."""

    def __init__(
        self, clock: Clock, trace: Trace, disk: SimDisk, settings: "BrokerSettings", witness: "Witness", *,
        wall_ms_at_zero: float, enter: Callable[[Callable[[], None]], None], answer: Callable[[mm.ToSession], None],
        report: Callable[[mm.Report], None], number: int = 0,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._trace = trace
        self._disk = disk
        self._check_every = settings.check_every
        self._witness = witness
        self._enter = enter
        self._answer = answer
        self._report = report
        self._commands: deque[mm.Command] = deque()
        self._is_running = False
        self._runs = 0
        self.is_dead = False
        self.stored = load(disk.open(self))
        self.stored.stream_files = disk.stream_files.open(self, held_streams(self.stored.streams))
        self.machine = MessageManager(
            settings.destination, settings.stream, wall_ms_at_zero=wall_ms_at_zero, number=number
        )

    def begin(self) -> None:
        self._run(self.machine.restore(self.stored, now=self._clock.now))

    def die(self) -> None:
        """The machine stays to be looked at, and hears nothing any more."""
        self.check()
        self.is_dead = True

    def check(self) -> None:
        if self._check_every and not self.is_dead:
            self.machine.check()

    def deadline(self) -> float | None:
        return None if self.is_dead else self.machine.deadline()

    def frame(self, event: mm.FromSession) -> None:
        if self.is_dead:
            return
        if self._trace.is_read:
            self._trace.say("manager", f"<- {tail(event.session)} on {event.destination}: {brief(event.frame)}")
        self._witness.to_manager(event)
        self.tell(event)

    def tell(self, event: mm.Event) -> None:
        if not self.is_dead:
            self._run(self.machine.handle(event, now=self._clock.now))

    # -- the disk --------------------------------------------------------------------------------------

    def written(self, tokens: list[int]) -> None:
        self._enter(partial(self._confirm, tokens))
        for token in tokens:
            self._enter(partial(self.tell, mm.Written(token)))

    def _confirm(self, tokens: list[int]) -> None:
        if not self.is_dead:
            self._run(self.machine.confirms(tokens))
            self._run(self.machine.deliveries(tokens, now=self._clock.now))

    def read_done(self, event: mm.BatchesRead | mm.DelayedRead) -> None:
        self._enter(partial(self.tell, event))

    def files_told(self, event: FileEvent) -> None:
        self._enter(partial(self.tell, event))

    def writes_blocked(self, reason: str) -> None:
        self._enter(partial(self.tell, mm.WritesBlocked(reason) if reason else mm.WritesUnblocked()))

    # -- commands --------------------------------------------------------------------------------------

    def _run(self, commands: list[mm.Command]) -> None:
        """In the order in which they were given, also when running one leads to more."""
        self._commands += commands
        if self._is_running:
            return
        self._is_running = True
        while self._commands:
            match command := self._commands.popleft():
                case mm.ToSession():
                    self._witness.from_manager(command)
                    self._answer(command)
                case mm.Write():
                    if self._trace.is_read:
                        self._trace.say("manager", f"write {command.token}: {_operations(command)}")
                    self._disk.write(command)
                case mm.Read():
                    answer = self._disk.read(command)
                    if answer is not None:
                        self.tell(answer)
                case mm.ReadDelayed():
                    self._disk.read_delayed(command)
                case mm.Report():
                    self._report(command)
                case mm.ReadRows() | mm.DecideMove():
                    raise AssertionError("nothing is moved in this world")
                case _:
                    self._disk.stream_files.do(command)
        self._is_running = False
        self._runs += 1
        if self._check_every and self._runs % self._check_every == 0:
            self.machine.check()


def load(store: Store) -> StoredState:
    """The tables that the machines keep in memory."""
    state = StoredState()
    for table, records in state.tables().items():
        for item in store.scan(table, b"", b"\xff" * 9, limit=1_000_000):
            assert not isinstance(item, Damaged), "the simulator damages batches only"
            records[item.key] = item.value
    return state


def brief(frame: Frame) -> str:
    """A frame on one line, for people."""
    fields = ", ".join(
        tail(value) if isinstance(value, bytes) else repr(value)
        for value in (getattr(frame, name) for name in frame.__struct_fields__)
    )
    return f"{type(frame).__name__}({fields})"


def tail(identity: bytes) -> str:
    return identity.hex()[-6:] or "new"


def _operations(write: mm.Write) -> str:
    names = [f"{type(operation).__name__} {operation.table.name}" for operation in write.operations]
    return ", ".join(names) + (" (freeing)" if write.freeing else "")
