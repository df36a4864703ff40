"""Pages of logs from backups, so that whoever reads does not slow down a primary.

    client ── log.read with an identity ──> front ──> a backup that is in sync ──> its store
                                              │         not here, or no answer within `ANSWER_S_MAX`
                                              └──────> the primary, as everything else

A backup's store may hold orders that are not committed, and never will be if the primary is another one by now. So a
page is told only when everything that the store held after it was read is known to be committed; that is the next
order, or heartbeat, later. A backup that is being copied, or has lost its primary, says that it has nothing to tell.
"""
import asyncio
from collections.abc import Callable, Iterator
from itertools import count, islice

import msgspec

from angarium.core.destination.events import Read
from angarium.core.destination.log import LANE_BITS, LogField, lane_of, parse_log_record
from angarium.core.destination.log_pages import LogWanted, Stretch
from angarium.core.destination.records import DestinationRecord
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.replication.backup import Backup
from angarium.core.replication.replication import Replication
from angarium.core.session.destination_service import Posted
from angarium.core.storage import Table, key_of
from angarium.core.wire.envelope import open_envelope, seal
from angarium.core.wire.frames import Reply, Request
from angarium.node.cluster.store_readers import StoreReaders
from angarium.runtime.reading import read_from_store
from angarium.store.interface import Item, Store, ValueDamaged

NOT_HERE = "not-here"  # the code of a Reply that says: ask the primary
ANSWER_S_MAX = 2.0
COMMITTED_S_MAX = 1.0  # how long a backup waits to hear that what it has read is committed
_LOOK_S = 0.005
_SCAN_LIMIT = 10_000
_MOVED_MAX = 10_000  # destinations that came from other groups; readers of one past it go to the primary
LOOK_AGAIN_S = 1.0


class LogReadsFront:
    """`backups(group)`: incarnations of nodes that have one in sync; `send(node, message)`; `to_primary(posted)`."""

    def __init__(
        self,
        backups: Callable[[int], list[bytes]],
        send: Callable[[bytes, bytes], bool],
        to_primary: Callable[[Posted], None],
        tell: Callable[[bytes, Reply, bytes], None],
    ) -> None:
        self._backups = backups
        self._send = send
        self._to_primary = to_primary
        self._tell = tell
        self._turns = count()
        self._asked: dict[tuple[bytes, int], tuple[Posted, asyncio.TimerHandle]] = {}  # one for each session

    def take(self, posted: Posted) -> bool:
        """Ask a backup, if the request is for one and there is one."""
        frame, session = posted.command.frame, posted.command.session
        if not isinstance(frame, Request) or frame.command != "log.read" or not frame.arguments.get("identity"):
            return False
        backups = self._backups(posted.group)
        if not backups:
            return False
        node = backups[next(self._turns) % len(backups)]
        if not self._send(node, b"".join(seal(posted.group, 0, session, 0, frame, b""))):
            return False
        key = (session, frame.number)
        timer = asyncio.get_running_loop().call_later(ANSWER_S_MAX, self._give_up, key)
        self._asked[key] = posted, timer
        return True

    def answered(self, data: bytes) -> None:
        envelope = open_envelope(data)
        frame = envelope.frame
        asked = self._asked.pop((envelope.session, frame.number), None) if isinstance(frame, Reply) else None
        if asked is None or not isinstance(frame, Reply):
            return  # too late
        posted, timer = asked
        timer.cancel()
        if frame.code == NOT_HERE:
            self._to_primary(posted)
        else:
            self._tell(envelope.session, frame, envelope.payload)

    def _give_up(self, key: tuple[bytes, int]) -> None:
        posted, _ = self._asked.pop(key)
        self._to_primary(posted)


def asked_of(message: bytes) -> tuple[int, bytes, Request]:
    """Group, session and request, as a front has sent it."""
    envelope = open_envelope(message)
    if not isinstance(envelope.frame, Request):
        raise RemoteProtocolError("bad-message", f"{type(envelope.frame).__name__} instead of a request for a page")
    return envelope.group, envelope.session, envelope.frame


def not_here(request: Request) -> Reply:
    return Reply(request.number, NOT_HERE, "this replica cannot tell; ask the primary")


class LogReadsBackup:
    """Of one replica."""

    def __init__(self, readers: StoreReaders, replication: Replication) -> None:
        self._readers = readers
        self._replication = replication
        self.pages = 0  # told
        self._moved = Moved()

    async def answer(self, request: Request) -> tuple[Reply, bytes]:
        if not self._can_tell():
            return not_here(request), b""
        try:
            page = await self._readers.read(read_page, request, self._moved, asyncio.get_running_loop().time())
        except Rejected as refused:
            return Reply(request.number, refused.code, refused.reason), b""
        if page is None or not await self._is_committed(self._replication.local.handed.number):
            return not_here(request), b""
        self.pages += 1
        told, payload = page
        return Reply(request.number, "", "", told), payload

    def _can_tell(self) -> bool:
        replication, configuration = self._replication, self._replication.configuration
        role = replication.role
        return (
            not self._readers.is_closing and isinstance(role, Backup) and role.is_welcome and role.guest is None
            and not replication.local.is_copying and isinstance(configuration, GroupConfiguration)
            and replication.me in configuration.in_sync
        )  # fmt: skip

    async def _is_committed(self, order: int) -> bool:
        waited_s = 0.0
        while self._can_tell():
            role = self._replication.role
            assert isinstance(role, Backup)
            if role.committed >= order:
                return True
            if waited_s >= COMMITTED_S_MAX:
                return False
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S
        return False


class Moved:
    """Destinations that came from other groups, by the id that their readers know. One look through all records finds
    all of them; there is one in LOOK_AGAIN_S at most, whoever asks for whatever is not here."""

    def __init__(self) -> None:
        self._present: dict[int, int] = {}  # by the first id
        self._look_at = float("-inf")  # the next time

    def find(self, store: Store, first_identity: int, now: float) -> int | None:
        """The id that the destination has here."""
        for _ in range(2):
            present = self._present.get(first_identity, first_identity)
            if store.get(Table.DESTINATION, key_of(present)) is not None:
                return present
            if now < self._look_at:
                break
            self._look_at = now + LOOK_AGAIN_S
            self._present = dict(islice(_moved_here(store), _MOVED_MAX))
        return None


def _moved_here(store: Store) -> Iterator[tuple[int, int]]:
    low = b""
    while found := store.scan(Table.DESTINATION, low, key_of((1 << 63) - 1), limit=_SCAN_LIMIT):
        for item in found:
            if isinstance(item, Item):
                record = msgspec.msgpack.decode(item.value, type=DestinationRecord)
                if record.first_identity:
                    yield record.first_identity, int.from_bytes(item.key, "big")
        low = found[-1].key + b"\0"


def read_page(
    store: Store, request: Request, moved: Moved, now: float
) -> tuple[dict[str, object], bytes] | None:
    """None: the store knows no such destination, or some of what it knows is damaged: the primary may have it whole.
    `moved`: what was found out before."""
    wanted, first_identity = LogWanted.of(request), request.arguments["identity"]
    if not isinstance(first_identity, int) or not 0 < first_identity < 1 << 63:
        raise Rejected("bad-argument", f"identity {first_identity!r} is none that a destination can have")
    try:
        if (identity := moved.find(store, first_identity, now)) is None:
            return None
        lane = lane_of(wanted.position)
        before = _stretch(store, identity, lane)
        start, _ = wanted.within(before)
        if start is None:
            return wanted.nothing(before._replace(identity=first_identity)), b""
        batches = read_from_store(store, Read(0, identity, start, wanted.bytes_max, before.end))
        first = _stretch(store, identity, lane).first  # some of it may have been freed meanwhile
    except ValueDamaged:
        return None
    told, payload = wanted.page(before._replace(identity=first_identity, first=first), batches)
    return None if "missing" in told else (told, payload)


def _stretch(store: Store, identity: int, lane: int) -> Stretch:
    figures = [lane << LANE_BITS] * 2
    for at, field in enumerate((LogField.FIRST, LogField.NEXT)):
        key = key_of(identity, bytes((field, lane)))
        value = store.get(Table.LOG, key)
        if value is not None:
            figures[at] = max(figures[at], parse_log_record(key, value)[2][0])
    return Stretch(identity, *figures)
