"""A message manager on a fake disk, and what its sessions see of it.

`World` performs the manager's commands in order, as the node does. With `auto` (the default) the disk answers at once;
without it a test takes each step itself. The invariants are checked after every event, or, where a test makes so many
destinations that this would be most of its work, when it says so.
"""
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import (
    BatchesRead,
    Command,
    DecideMove,
    DelayedRead,
    DestinationSettings,
    Event,
    FromSession,
    Read,
    ReadDelayed,
    ReadRows,
    Report,
    Tick,
    ToSession,
    Write,
    WritesBlocked,
    WritesUnblocked,
    Written,
)
from angarium.core.destination.log import lane_of
from angarium.core.destination.message_manager import MessageManager
from angarium.core.destination.noting import NOTE_AFTER_S
from angarium.core.destination.overtaking import overtaking
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.moving.moves import FRAMES as MOVE_FRAMES
from angarium.core.storage import DeleteRange, Table
from angarium.core.stream.events import AppendBlock, DeleteFile, ReadBlocks, SyncFile
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Frame
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_disk import FakeDisk
from tests.unit.core.core_streams import FakeFiles

WALL_MS_AT_ZERO = 1_700_000_000_000.0
_F = TypeVar("_F", bound=Frame)


def identity(number: int) -> bytes:
    return number.to_bytes(GLOBAL_ID_BYTES, "big")


class World:
    def __init__(
        self,
        settings: DestinationSettings | None = None,
        *,
        disk: FakeDisk | None = None,
        auto: bool = True,
        now: float = 1_000.0,
        number: int = 0,
        files: FakeFiles | None = None,
    ) -> None:
        self.settings = settings or DestinationSettings()
        self.disk = disk or FakeDisk()
        self.files = files  # None: nothing is made of what is asked of files
        self.auto = auto
        self.is_checked = True
        self.now = now
        self.sent: dict[bytes, list[tuple[Frame, bytes]]] = {}
        self.on_sent: Callable[[bytes, Frame, bytes], None] | None = None  # told of everything that is sent
        self.reports: list[Report] = []
        self.reads: deque[Read | ReadDelayed | ReadRows] = deque()
        self.moving: deque[ToSession | DecideMove] = deque()  # for other groups, and for group services
        self._uses: dict[bytes, dict[int, None]] = {}  # where each session has sent something
        self._last_identity = 0
        self.number = number
        self.manager = MessageManager(self.settings, wall_ms_at_zero=WALL_MS_AT_ZERO, number=number)
        self._run(self.manager.restore(self.disk.state(), now=now))

    # -- events ------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        self._run(self.manager.handle(event, now=self.now))
        if self.is_checked:
            self.manager.check()
            waiting = {write.token for write in self.disk.waiting}
            assert self.manager._writes.keys() == waiting, "something is noted of a write that was never asked for"
        if self.auto:
            self.run_disk()
            self.read_selectors()

    def read_selectors(self) -> None:
        """Until all that are large are read."""
        while (due := self.manager.readings.deadline()) is not None:
            self.now = max(self.now, due)
            self.tell(Tick())

    def frame(self, session: bytes, destination: int, frame: Frame, payload: bytes = b"") -> None:
        self._uses.setdefault(session, {})[destination] = None
        self.tell(FromSession(session, destination, frame, payload))

    def _run(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case ToSession(session, frame, payload):
                    self.sent.setdefault(session, []).append((frame, payload))
                    if isinstance(frame, MOVE_FRAMES):
                        self.moving.append(command)
                    if self.on_sent is not None:
                        self.on_sent(session, frame, payload)
                case Write():
                    self.disk.waiting.append(command)
                case Read() | ReadDelayed() | ReadRows():
                    self.reads.append(command)
                case DecideMove():
                    self.moving.append(command)
                case Report():
                    self.reports.append(command)
                case AppendBlock() | SyncFile() | DeleteFile() | ReadBlocks() if self.files is not None:
                    self.files.waiting.append(command)

    # -- the disk ----------------------------------------------------------------------------------

    def run_disk(self) -> None:
        """Until nothing is left that the disk could do."""
        while self.complete_write() or self.complete_read() or self.complete_file():
            pass

    def complete_write(self) -> bool:
        if self.disk.waiting and (not self.disk.full or overtaking(self.disk.waiting)):
            self._check_deletions()
            write = self.disk.complete_next()
            assert write is not None
            auto, self.auto = self.auto, False
            self.tell(Written(write.token))
            self.auto = auto
            return True
        return False

    def complete_read(self) -> bool:
        if not self.reads:
            return False
        read = self.reads.popleft()
        auto, self.auto = self.auto, False
        if isinstance(read, ReadDelayed):
            self.tell(DelayedRead(read.token, self.disk.read_delayed(read)))
        elif isinstance(read, ReadRows):
            self.tell(self.disk.read_rows(read))
        else:
            self.tell(BatchesRead(read.token, self.disk.read(read)))
        self.auto = auto
        return True

    def complete_file(self) -> bool:
        if self.files is None or not self.files.waiting:
            return False
        auto, self.auto = self.auto, False
        for event in self.files.do_next():
            self.tell(event)
        self.auto = auto
        return True

    def _check_deletions(self) -> None:
        """No deletion about to be written covers a batch that some subscription still needs."""
        for write in self.disk.waiting:
            for operation in write.operations:
                if isinstance(operation, DeleteRange) and operation.table == Table.BATCH:
                    for key in self.disk.keys_in(operation):
                        self._check_unneeded(key)

    def _check_unneeded(self, key: bytes) -> None:
        destination = self.manager.destinations.get(int.from_bytes(key[:8], "big"))
        if destination is None or key in self.disk.damaged:
            return
        end = int.from_bytes(key[8:], "big")
        low = end - Batch.trusted(self.disk.tables[Table.BATCH][key]).count
        for subscription in destination.subscriptions:
            if subscription.is_idle_in(lane_of(low)):  # it has looked at all, and wants nothing of it
                continue
            needed = subscription.settled.gaps(max(low, subscription.cursor_of(lane_of(low))), end)
            assert not needed, f"{subscription.name!r} still needs {needed} of the batch {low}..{end - 1}"

    def block(self, reason: str = "no space left") -> None:
        self.disk.full = True
        self.tell(WritesBlocked(reason))

    def unblock(self) -> None:
        self.disk.full = False
        self.tell(WritesUnblocked())

    def restarted(self, *, kept: int = 0, after_s: float = 0.0, settings: DestinationSettings | None = None) -> "World":
        """The node crashes; of the writes that wait the first `kept` had reached the disk."""
        self.disk.crash(kept)
        self.disk.full = False
        if self.files is not None:
            self.disk.stream_files = self.files.crash()
        successor = World(
            settings or self.settings, disk=self.disk, auto=self.auto, now=self.now + after_s, number=self.number,
            files=self.files,
        )  # fmt: skip
        successor._last_identity = self._last_identity
        if self.auto:
            successor.run_disk()
        return successor

    # -- time --------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, with a Tick at each deadline on the way."""
        until = self.now + seconds
        while (due := self.manager.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.tell(Tick())
            following = self.manager.deadline()
            assert following is None or following > self.now, "a Tick left its own deadline behind"
        self.now = until

    def rest(self) -> None:
        """Until it is noted what was delivered."""
        self.advance(2 * NOTE_AFTER_S)

    @property
    def wall_ms(self) -> int:
        return int(WALL_MS_AT_ZERO + self.now * 1000)

    # -- sessions ----------------------------------------------------------------------------------

    def session(self) -> bytes:
        return self._fresh_identity()

    def _fresh_identity(self) -> bytes:
        self._last_identity += 1
        return identity(self._last_identity)

    def end(self, session: bytes, *, closed: bool) -> None:
        """The client manager tells every destination of the session, behind all that it sent there before."""
        for destination in self._uses.pop(session, {}):
            if destination:
                self.tell(FromSession(session, destination, frames.SessionEnded(closed)))

    def stall(self, session: bytes, stalled: bool) -> None:
        for destination in self._uses[session]:
            if destination:
                self.tell(FromSession(session, destination, frames.Stall(stalled)))

    def received(self, session: bytes, kind: type[_F]) -> list[_F]:
        return [frame for frame, _ in self.sent.get(session, []) if isinstance(frame, kind)]

    def last(self, session: bytes, kind: type[_F]) -> _F:
        return self.received(session, kind)[-1]

    # -- destinations --------------------------------------------------------------------------------

    def locate(self, name: str, kind: DestinationKind = DestinationKind.QUEUE) -> int:
        """Find or create a destination; its number."""
        session = self.session()
        self.frame(session, 0, frames.Locate(name, kind))
        located = self.last(session, frames.Located)
        assert not located.code, located.reason
        return located.destination

    def queue_with(self, *batches: int, name: str = "q") -> int:
        """A queue that holds batches of so many messages; bodies are m0, m1, ..."""
        destination = self.locate(name)
        producer = self.producer(destination)
        first = 0
        for count in batches:
            producer.publish(*(b"m%d" % number for number in range(first, first + count)))
            first += count
        producer.close()
        return destination

    def destination(self, number: int) -> Destination:
        return self.manager.destinations[number]

    def request(self, command: str, **arguments: Any) -> frames.Reply:
        return self.request_with_payload(command, **arguments)[0]

    def request_with_payload(self, command: str, **arguments: Any) -> tuple[frames.Reply, bytes]:
        session = self.session()
        self.frame(session, 0, frames.Request(1, command, arguments))
        (answer, payload), *more = self.sent[session]
        assert not more and isinstance(answer, frames.Reply)
        return answer, payload

    def describe(self, name: str) -> dict[str, Any]:
        reply = self.request("destination.describe", name=name)
        assert not reply.code, reply.reason
        assert isinstance(reply.result, dict)
        return reply.result

    def producer(self, destination: int, **options: Any) -> Producer:
        return Producer(self, destination, **options)

    def consumer(self, destination: int, **options: Any) -> Consumer:
        return Consumer(self, destination, **options)
