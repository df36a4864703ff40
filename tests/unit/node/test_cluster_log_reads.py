"""Goal: a backup tells a page exactly as the primary would, only what is committed, and else sends to the primary."""
import asyncio
import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from angarium.core.destination.records import DestinationRecord
from angarium.core.groups.configuration import GroupConfiguration, Position, Replica
from angarium.core.replication.backup import Backup
from angarium.core.session.destination_service import Posted
from angarium.core.session.events import ToBus
from angarium.core.storage import Put, Table, delete_key, key_of
from angarium.core.wire.envelope import open_envelope, seal
from angarium.core.wire.frames import Reply, Request
from angarium.core.wire.packing import MessageColumns
from angarium.node.cluster import log_reads
from angarium.node.cluster.log_reads import LOOK_AGAIN_S, NOT_HERE, LogReadsBackup, LogReadsFront, Moved, read_page
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.store_readers import StoreReaders
from angarium.store.memory import MemoryStore
from tests.unit.core.core_manager import World

ME, OTHER = Replica("n2", b"2" * 16), Replica("n1", b"1" * 16)
SESSION = b"s" * 16


def world_and_store(seed: int) -> tuple[World, MemoryStore, int]:
    """A primary with messages of two priorities, some of them settled; and a store that holds the same."""
    chance, world = random.Random(seed), World()
    world.request("destination.create", name="q", kind="queue", retain_messages=chance.choice((0, 30)))
    queue = world.locate("q")
    producer = world.producer(queue)
    for _ in range(20):
        count = chance.randrange(1, 6)
        columns = MessageColumns(
            priorities=[chance.choice((4, 9)) for _ in range(count)],
            properties=[msgspec.msgpack.encode({"n": chance.randrange(3)}) for _ in range(count)],
        )
        producer.publish(*[chance.randbytes(chance.randrange(40)) for _ in range(count)], columns=columns)
    consumer = world.consumer(queue, credit=30)
    consumer.settle(*((position, position + 1) for position in consumer.positions[: chance.randrange(30)]))
    world.advance(2)
    store = MemoryStore()
    store.commit([Put(table, k, v) for table, records in world.disk.tables.items() for k, v in records.items()])
    return world, store, queue


@pytest.mark.parametrize("seed", range(20))
def test_a_page_is_the_same_wherever_it_is_read(seed: int) -> None:
    world, store, identity = world_and_store(seed)
    chance = random.Random(seed)
    for _ in range(50):
        base = chance.choice((0, 5 << 56, 7 << 56))
        position = base + chance.randrange(60)
        arguments: dict[str, Any] = {"name": "q", "identity": identity, "position": position}
        arguments |= chance.choice(({}, {"end": position + chance.randrange(30)}))
        arguments |= chance.choice(({}, {"selector": "n > 0"}, {"omit": ["body"]}, {"bytes_max": 200}))
        reply, payload = world.request_with_payload("log.read", **arguments)
        page = read_page(store, Request(1, "log.read", arguments), Moved(), 0.0)
        assert not reply.code and page == (reply.result, payload)


def test_a_destination_that_is_not_there_is_left_to_the_primary() -> None:
    _, store, identity = world_and_store(0)
    assert read_page(store, Request(1, "log.read", {"identity": identity + 1, "position": 0}), Moved(), 0.0) is None


def test_what_is_damaged_here_is_left_to_the_primary() -> None:
    _, store, identity = world_and_store(0)
    request = Request(1, "log.read", {"identity": identity, "position": 0})
    page = read_page(store, request, Moved(), 0.0)
    assert page is not None and page[0]["parts"]
    keys = [item.key for item in store.scan(Table.BATCH, key_of(identity), key_of(identity, b"\xff" * 8), limit=100)]
    store.commit([delete_key(Table.BATCH, keys[0])])
    assert read_page(store, request, Moved(), 0.0) is None


def test_whatever_is_asked_for_records_are_looked_through_once_in_a_while() -> None:
    _, store, identity = world_and_store(0)
    looks: list[int] = []
    scan = store.scan

    def counted(table: Table, *arguments: Any, **more: Any) -> Any:
        looks.append(table == Table.DESTINATION)
        return scan(table, *arguments, **more)

    store.scan = counted  # type: ignore[method-assign]
    moved = Moved()
    assert [moved.find(store, identity + 1 + n, n / 1_000) for n in range(100)] == [None] * 100
    once = sum(looks)
    assert 0 < once <= 2, "one look, in portions"
    record = msgspec.msgpack.decode(store.get(Table.DESTINATION, key_of(identity)) or b"", type=DestinationRecord)
    come = msgspec.msgpack.encode(replace(record, first_identity=77))
    store.commit([Put(Table.DESTINATION, key_of(identity + 5), come)])
    assert moved.find(store, 77, 0.5) is None, "not yet: the primary is asked"
    assert moved.find(store, 77, LOOK_AGAIN_S) == identity + 5
    assert moved.find(store, 77, LOOK_AGAIN_S) == identity + 5 and sum(looks) == 2 * once


class Replicated:
    """As much of a replication as a reader looks at."""

    def __init__(self, *, committed: int, handed: int) -> None:
        self.role: Any = Backup.__new__(Backup)
        self.role.is_welcome, self.role.guest, self.role.committed = True, None, committed
        self.local = SimpleNamespace(handed=Position(1, handed), is_copying=False)
        self.me = ME
        self.configuration = GroupConfiguration("a", 1, 1, OTHER, (OTHER, ME), ("n1", "n2"), 2, 1)


def answer(replicated: Replicated, **arguments: Any) -> Reply:
    _, store, identity = world_and_store(1)
    backup = LogReadsBackup(StoreReaders(store, Machinery()), replicated)  # type: ignore[arg-type]
    request = Request(7, "log.read", {"identity": identity, "position": 0, **arguments})
    reply, _ = asyncio.run(backup.answer(request))
    assert reply.number == 7 and backup.pages == (not reply.code)
    return reply


def test_what_is_committed_is_told() -> None:
    assert not answer(Replicated(committed=9, handed=9)).code


def test_what_may_not_be_committed_is_left_to_the_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "COMMITTED_S_MAX", 0.02)
    assert answer(Replicated(committed=8, handed=9)).code == NOT_HERE


@pytest.mark.parametrize("change", ["primary", "unwelcome", "copying", "guest", "out of sync", "unconfigured"])
def test_a_replica_that_is_no_backup_in_sync_leaves_it_to_the_primary(change: str) -> None:
    replicated = Replicated(committed=9, handed=9)
    match change:
        case "primary":
            replicated.role = object()
        case "unwelcome":
            replicated.role.is_welcome = False
        case "copying":
            replicated.local.is_copying = True
        case "guest":
            replicated.role.guest = object()
        case "out of sync":
            replicated.configuration = msgspec.structs.replace(replicated.configuration, in_sync=(OTHER,))
        case "unconfigured":
            replicated.configuration = None  # type: ignore[assignment]
    assert answer(replicated).code == NOT_HERE


def test_mistakes_are_answered_by_whoever_sees_them() -> None:
    assert answer(Replicated(committed=9, handed=9), position=-1).code == "bad-argument"
    assert answer(Replicated(committed=9, handed=9), identity=1 << 63).code == "bad-argument"


class Front:
    def __init__(self, backups: list[bytes], *, sends: bool = True) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.to_primary: list[Posted] = []
        self.told: list[tuple[bytes, Reply, bytes]] = []
        self.reads = LogReadsFront(
            lambda group: backups, lambda node, message: sends and not self.sent.append((node, message)),  # type: ignore[func-returns-value]
            self.to_primary.append, lambda *told: self.told.append(told),
        )  # fmt: skip


def posted(number: int = 3, command: str = "log.read", **arguments: Any) -> Posted:
    return Posted(1, ToBus(SESSION, 0, Request(number, command, {"name": "q", "identity": 5, **arguments})))


def answered(code: str, payload: bytes = b"", number: int = 3) -> bytes:
    return b"".join(seal(1, 0, SESSION, 0, Reply(number, code, ""), payload))


def test_backups_take_turns_and_their_answers_are_told() -> None:
    async def scenario() -> None:
        front = Front([b"a", b"b"])
        assert front.reads.take(posted(3)) and front.reads.take(posted(4))
        assert [node for node, _ in front.sent] == [b"a", b"b"]
        group, session, request = log_reads.asked_of(front.sent[0][1])
        assert (group, session, request.number) == (1, SESSION, 3)
        front.reads.answered(answered("", b"page"))
        front.reads.answered(answered("", b"page"))  # once more
        assert front.told == [(SESSION, Reply(3, "", ""), b"page")] and not front.to_primary
        assert open_envelope(front.sent[1][1]).session == SESSION

    asyncio.run(scenario())


def test_what_a_backup_cannot_tell_or_does_not_the_primary_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "ANSWER_S_MAX", 0.01)

    async def scenario() -> None:
        front = Front([b"a"])
        front.reads.take(posted(3)), front.reads.take(posted(4))
        front.reads.answered(answered(NOT_HERE))
        assert [p.command.frame.number for p in front.to_primary] == [3]  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        assert [p.command.frame.number for p in front.to_primary] == [3, 4]  # type: ignore[attr-defined]
        front.reads.answered(answered("", b"late", 4))
        assert not front.told

    asyncio.run(scenario())


def test_everything_else_goes_to_the_primary_at_once() -> None:
    async def scenario() -> None:
        assert not Front([]).reads.take(posted())
        assert not Front([b"a"], sends=False).reads.take(posted())
        assert not Front([b"a"]).reads.take(posted(command="log.describe"))
        assert not Front([b"a"]).reads.take(posted(identity=0)), "who does not say which one asks for the present"

    asyncio.run(scenario())
