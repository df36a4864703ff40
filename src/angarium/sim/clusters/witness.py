"""What the message managers of a simulated cluster hear and say, shown to the ledger: of each group, the one that was
started last.

A write is durable when the manager is told so. When another manager takes over, what of its predecessor's writes the
new store has is durable too, though nobody was told. Which those are the store's position in the group's history tells:
each write is known by the order that carries it.
"""
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from angarium.core.destination import events as mm
from angarium.core.destination.destination import Destination
from angarium.core.destination.message_manager import MessageManager
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.restoring import StoredState
from angarium.core.groups.configuration import Position
from angarium.core.replication.history import POSITION_KEY, History
from angarium.core.storage import Operation, Put, Table
from angarium.core.stream.events import StreamSettings
from angarium.sim.messages import Violation
from angarium.store.interface import Store
from angarium.store.replicas import load_replica

_EPOCHS_MAX = 1_000


class Watch(Protocol):
    """Who keeps the ledger: what passes in the message manager of a group, and what of it is durable."""

    def to_manager(self, event: mm.FromSession) -> None: ...

    def from_manager(self, command: mm.ToSession, token: int) -> None:
        """`token`: of the writes that it has asked for, the last."""

    def from_predecessor(self, command: mm.ToSession, group: int, manager: int) -> None:
        """Of a manager that has a successor, and has not heard of it: number `manager` of its group, from 0."""

    def synced(self, group: int, operations: Sequence[Operation]) -> None: ...

    def reported(self, report: mm.Report) -> None: ...

    def manager_stopped(self, group: int, is_fragile: Callable[[int], bool]) -> None: ...

    def manager_started(self, group: int) -> None: ...

    def destination_opened(self, name: str, identity: int) -> None:
        """From what is stored of it: it was moved, or was to be."""


class GroupWitness:
    """Of one group, through all its message managers."""

    def __init__(self, number: int, watch: Watch) -> None:
        self.current: WitnessedManager | None = None
        self._managers = 0  # so many took over
        self._number = number
        self._watch = watch
        self._base = 0  # tokens of each manager begin at 1
        self._last_token = 0
        self._asked: dict[int, Sequence[Operation]] = {}  # not known to be durable
        self._carriers: dict[int, int] = {}  # identity of an operation -> token of the write that it is part of
        self._orders: dict[int, Position] = {}  # token -> the order that carries it

    def took_over(self, manager: "WitnessedManager", store: Store) -> None:
        stored = load_replica(store)
        history = History(stored.epochs, epochs_max=_EPOCHS_MAX)
        survived = [t for t, order in self._orders.items() if history.holds(order, stored.position.number)]
        for token in sorted(survived, key=lambda token: self._orders[token].number):
            self._durable(token)
        if self.current is not None:
            self._watch.manager_stopped(self._number, self._is_fragile)
        self._asked.clear()
        self._carriers.clear()
        self._orders.clear()
        self._base = self._last_token
        self.current = manager
        manager.number_in_group = self._managers
        self._managers += 1
        self._watch.manager_started(self._number)

    def _is_fragile(self, token: int) -> bool:
        """Whether some write asked for up to this one is lost."""
        return any(asked <= token for asked in self._asked)

    def _durable(self, token: int) -> None:
        operations = self._asked.pop(token)
        for operation in operations:
            self._carriers.pop(id(operation), None)
        self._orders.pop(token, None)
        self._watch.synced(self._number, operations)

    def opened(self, name: str, identity: int) -> None:
        self._watch.destination_opened(name, identity)

    def hears(self, event: mm.Event) -> None:
        if isinstance(event, mm.FromSession):
            self._watch.to_manager(event)
        elif isinstance(event, mm.Written):
            self._durable(self._base + event.token)

    def says(self, commands: Sequence[mm.Command]) -> None:
        for command in commands:
            if isinstance(command, mm.Write):
                self._last_token = token = self._base + command.token
                self._asked[token] = command.operations
                self._carriers |= dict.fromkeys(map(id, command.operations), token)
            elif isinstance(command, mm.ToSession):
                self._watch.from_manager(command, self._last_token)
            elif isinstance(command, mm.Report):
                self._watch.reported(command)

    def predecessor_says(self, commands: Sequence[mm.Command], manager: int) -> None:
        for command in commands:
            if isinstance(command, mm.ToSession):
                self._watch.from_predecessor(command, self._number, manager)

    def ordered(self, operations: Sequence[Operation]) -> None:
        """Some store of the group is asked to write this. Backups have operations of their own, equal ones. Orders
        that are written together have numbers one after the other, and the last of them is named."""
        found = [token for operation in operations if (token := self._carriers.get(id(operation))) is not None]
        tokens = list(dict.fromkeys(found))
        if not tokens:
            return
        for operation in operations:
            if isinstance(operation, Put) and operation.table == Table.REPLICA and operation.key == POSITION_KEY:
                last = msgspec.msgpack.decode(operation.value, type=Position)
                for before, token in enumerate(reversed(tokens)):
                    self._orders[token] = Position(last.epoch, last.number - before)


class WitnessedManager(MessageManager):
    """Asks for its group's witness, and the store it runs on, with the group's number."""

    def __init__(
        self, witness: Callable[[int], GroupWitness], store: Callable[[int], Store], settings: mm.DestinationSettings,
        streams: StreamSettings | None = None, *, wall_ms_at_zero: float, number: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(settings, streams, wall_ms_at_zero=wall_ms_at_zero, number=number)
        self.number_in_group = 0
        self._witness = witness(number)
        self._witness.took_over(self, store(number))

    def restore(self, state: StoredState, *, now: float) -> list[mm.Command]:
        commands = super().restore(state, now=now)
        self._witness.says(commands)
        return commands

    def open_stored(
        self, identity: int, record: DestinationRecord, state: StoredState
    ) -> tuple[Destination, list[Operation], list[mm.Command]]:
        if self._witness.current is self:
            self._witness.opened(record.name, identity)
        return super().open_stored(identity, record, state)

    def handle(self, event: mm.Event, *, now: float) -> list[mm.Command]:
        if self._witness.current is not self:
            commands = super().handle(event, now=now)  # its clients may not have heard either
            self._witness.predecessor_says(commands, self.number_in_group)
            return commands
        self._witness.hears(event)
        commands = super().handle(event, now=now)
        self._witness.says(commands)
        return commands


class Serving:
    """One message manager for each epoch of each group."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], bytes] = {}

    def look(self, group: str, epoch: int, incarnation: bytes) -> None:
        known = self._of.setdefault((group, epoch), incarnation)
        if known != incarnation:
            raise Violation("one primary for each epoch", f"group {group}, epoch {epoch}: two nodes serve it")
