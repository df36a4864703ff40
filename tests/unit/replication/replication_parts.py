"""Small parts for the tests of replication: two or three replicas named a, b, c."""
from angarium.core.destination.events import Write
from angarium.core.groups.configuration import EMPTY, GroupConfiguration, Position, Replica
from angarium.core.replication.events import Command, ConfigurationChanged, Event, ReplicationSettings
from angarium.core.replication.history import StoredReplica
from angarium.core.replication.replication import Replication
from angarium.core.storage import Put, Table

A, B, C = (Replica(name, name.encode()) for name in "abc")


def configuration(epoch: int, *in_sync: Replica, members: str = "abc", min_copies: int = 1) -> GroupConfiguration:
    primary = in_sync[0]
    return GroupConfiguration(
        "g", 1, epoch, primary, in_sync, tuple(members), len(members), min_copies, b"start of " + primary.store
    )


def replica(me: Replica, *, position: Position = EMPTY, settings: ReplicationSettings | None = None) -> Replication:
    stored = StoredReplica(position, [(position.epoch, 1)] if position.epoch else [])
    return Replication(me, b"start of " + me.store, "g", stored, settings or ReplicationSettings())


def write(token: int, value: bytes = b"v", *, freeing: bool = False, patient: bool = False) -> Write:
    return Write(token, [Put(Table.BATCH, b"key %d" % token, value)], freeing, patient)


class Told:
    """A machine and what it asked for last."""

    def __init__(self, machine: Replication) -> None:
        self.machine = machine
        self.commands: list[Command] = []

    def tell(self, event: Event, now: float = 0.0) -> list[Command]:
        self.commands = self.machine.handle(event, now=now)
        return self.commands

    def configured(self, given: GroupConfiguration, now: float = 0.0) -> list[Command]:
        return self.tell(ConfigurationChanged(given), now)


def of(kind: type, commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, kind)]


def messages(commands: list[Command]) -> list[object]:
    return [getattr(command, "message", None) for command in commands if hasattr(command, "message")]
