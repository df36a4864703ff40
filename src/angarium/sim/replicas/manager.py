"""Stands in for a message manager: writes what comes over the channel, remembers what it was told, restores from a
store.

Each payload becomes one write: the payload under the next position of a log, the log's end, and the id of the write,
which is never deleted. Now and then it deletes the beginning of the log, which makes room. Some payloads come with a
stream: blocks in a file, which the write refers to once all of them are durable.
"""
from hashlib import blake2b
from random import Random
from typing import Protocol

import msgspec

from angarium.core.checksum import crc32
from angarium.core.destination.events import Write, WritesBlocked, WritesUnblocked
from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of, position_key
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import AppendBlock, DeleteFile, FileSynced, SyncFile
from angarium.core.stream.table import StreamRecord
from angarium.sim.replicas.checkers import UID_TABLE
from angarium.store.interface import Item, Store

Asked = Write | AppendBlock | SyncFile | DeleteFile
_DESTINATIONS = 3


class Manager(Protocol):
    """A message manager, as its node sees it: what it asks for, and the ids of what it has confirmed."""

    asked: list[Asked]  # at its start

    def payload(self, uid: bytes, payload: bytes, now: float) -> list[Asked]: ...

    def written(self, tokens: list[int], now: float) -> list[Asked]: ...

    def file_synced(self, event: FileSynced) -> list[Asked]: ...

    def set_blocked(self, event: WritesBlocked | WritesUnblocked, now: float) -> list[Asked]: ...

    def take_confirmed(self) -> tuple[list[bytes], list[bytes]]:
        """Now written; and known from before, in answer to a repetition."""


class StandIn:
    def __init__(self, store: Store, chance: Random, incarnation: bytes) -> None:
        self.asked: list[Asked] = []
        self._confirmed: list[bytes] = []
        self._repeated: list[bytes] = []
        self._incarnation = incarnation
        self._streams: dict[bytes, tuple[bytes, bytes, StreamRecord]] = {}  # being written
        self._held: dict[tuple[int, int], bytes] = {}  # destination, position -> stream
        self._gone: dict[int, list[bytes]] = {}  # token -> streams whose records it deletes
        self.unwritten: dict[int, bytes] = {}  # token -> id of the write
        self.blocked = ""
        self._chance = chance
        self._token = 0
        self._first = dict.fromkeys(range(1, _DESTINATIONS + 1), 0)
        self._next = dict(self._first)
        for item in store.scan(Table.LOG, b"", b"\xff" * 9, limit=100):
            assert isinstance(item, Item)
            destination = int.from_bytes(item.key[:8], "big")
            self._first[destination], self._next[destination] = (
                int.from_bytes(item.value[:8], "big"), int.from_bytes(item.value[8:], "big"),
            )  # fmt: skip
        for item in store.scan(Table.STREAM, b"", b"\xff" * 17, limit=10_000):
            assert isinstance(item, Item)
            place = int.from_bytes(item.key[:8], "big"), int.from_bytes(item.key[8:], "big")
            self._held[place] = msgspec.msgpack.decode(item.value, type=StreamRecord).identity
        self._known = {
            item.key for item in store.scan(UID_TABLE, b"", b"\xff" * 9, limit=100_000) if isinstance(item, Item)
        }

    def payload(self, uid: bytes, payload: bytes, now: float) -> list[Asked]:
        """What to write for it; nothing if it was written before: its sender could not know."""
        if self.blocked:
            return self._freeing()
        if uid in self._known:
            if self._is_durable(uid):
                self._repeated.append(uid)
            return []
        self._known.add(uid)
        if self._chance.random() < 0.12:
            return self._open_stream(uid, payload)
        return self._publish(uid, payload, None)

    def _open_stream(self, uid: bytes, payload: bytes) -> list[Asked]:
        stream = blake2b(uid + self._incarnation, digest_size=16).digest()
        count = self._chance.randint(1, 12)
        contents = [payload + bytes([number]) * (100 if number % 2 else 1) for number in range(count)]  # some compress
        blocks = [Block(crc32(content), number == count - 1, content) for number, content in enumerate(contents)]
        self._streams[stream] = (uid, payload, StreamRecord(stream, len(blocks), 0))
        appended: list[Asked] = [AppendBlock(stream, number, block) for number, block in enumerate(blocks)]
        return [*appended, SyncFile(stream, len(blocks))]

    def file_synced(self, event: FileSynced) -> list[Asked]:
        if event.stream not in self._streams or event.blocks < self._streams[event.stream][2].fragments:
            return []
        return self._publish(*self._streams.pop(event.stream))

    def _publish(self, uid: bytes, payload: bytes, record: StreamRecord | None) -> list[Asked]:
        chance = self._chance
        destination = chance.randint(1, _DESTINATIONS)
        self._next[destination] += 1
        end = self._next[destination]
        operations: list[Operation] = [
            Put(Table.BATCH, position_key(destination, end), payload),
            self._log_put(destination),
            Put(UID_TABLE, uid, b"%d %d" % (destination, end)),
        ]
        if record is not None:
            operations.append(Put(Table.STREAM, position_key(destination, end), msgspec.msgpack.encode(record)))
            self._held[destination, end] = record.identity
        writes: list[Asked] = [self._write(operations, uid)]
        if chance.random() < 0.3:
            writes.append(self._trim(destination))
        return writes

    def _is_durable(self, uid: bytes) -> bool:
        is_coming = any(uid == waiting for waiting, _, _ in self._streams.values())
        return uid in self._known and uid not in self.unwritten.values() and not is_coming

    def _freeing(self) -> list[Asked]:
        """While it may write nothing else, its consumers go on."""
        return [self._trim(self._chance.randint(1, _DESTINATIONS))] if self._chance.random() < 0.5 else []

    def _trim(self, destination: int) -> Write:
        first = self._chance.randint(self._first[destination], self._next[destination])
        low, high = position_key(destination, self._first[destination]), position_key(destination, first + 1)
        self._first[destination] = first
        # The name of the subscription keeps such writes from overtaking one another on a full disk.
        put = Put(Table.SUBSCRIPTION, key_of(destination, b"s"), b"%d" % first)
        operations: list[Operation] = [put, DeleteRange(Table.BATCH, low, high), DeleteRange(Table.STREAM, low, high)]
        write = self._write(operations, b"", freeing=True, patient=self._chance.random() < 0.5)
        gone = [place for place in self._held if place[0] == destination and place[1] <= first]
        self._gone[write.token] = [self._held.pop(place) for place in gone]
        return write

    def _log_put(self, destination: int) -> Put:
        first, end = self._first[destination], self._next[destination]
        return Put(Table.LOG, key_of(destination), first.to_bytes(8, "big") + end.to_bytes(8, "big"))

    def _write(self, operations: list[Operation], uid: bytes, *, freeing: bool = False, patient: bool = False) -> Write:
        self._token += 1
        self.unwritten[self._token] = uid
        return Write(self._token, operations, freeing, patient)

    def written(self, tokens: list[int], now: float) -> list[Asked]:
        self._confirmed += [uid for token in tokens if (uid := self.unwritten.pop(token))]
        return [DeleteFile(stream) for token in tokens for stream in self._gone.pop(token, ())]

    def set_blocked(self, event: WritesBlocked | WritesUnblocked, now: float) -> list[Asked]:
        self.blocked = event.reason if isinstance(event, WritesBlocked) else ""
        return []

    def take_confirmed(self) -> tuple[list[bytes], list[bytes]]:
        taken = (self._confirmed, self._repeated)
        self._confirmed, self._repeated = [], []
        return taken
