"""What a node needs of the world: disks, network, threads, chance, the hour. The simulator has its own of each.

The node itself is the same in both: it runs on whatever event loop is current, and a loop may well keep virtual time.
"""
import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from typing import Any, Protocol

from angarium.core.bus.counters import BusCounters
from angarium.core.bus.events import MembersChanged, Message
from angarium.core.destination.events import BatchesRead, Read, ReadDelayed, Write
from angarium.core.destination.message_manager import MessageManager
from angarium.core.session.events import Event
from angarium.core.stream.events import AppendBlock, DeleteFile, ReadBlocks, StoredFile, SyncFile
from angarium.core.wire.frames import Frame
from angarium.node.wall_clock import wall_ms_now
from angarium.runtime.cluster_bus import ClusterBus
from angarium.runtime.disk import Disk
from angarium.runtime.listener import Listener, ListenerSettings
from angarium.runtime.stream_disk import StreamDisk
from angarium.store.stream_files import StreamFiles

_PROBE_S_MAX = 1.0
_PROBE_PAUSES_S = (0.0, 0.005, 0.02, 0.05, 0.1)


class DiskLike(Protocol):
    def write(self, write: Write) -> None: ...
    def read(self, read: Read) -> BatchesRead | None: ...
    def read_delayed(self, read: ReadDelayed) -> None: ...
    async def close(self) -> bool: ...


class StreamFilesLike(Protocol):
    def scan(
        self, held: Container[bytes], *, unsynced_blocks_max: int, in_use: bool = False
    ) -> dict[bytes, StoredFile]: ...


class StreamDiskLike(Protocol):
    def write(self, command: AppendBlock | SyncFile | DeleteFile) -> None: ...
    def read(self, command: ReadBlocks) -> None: ...
    async def close(self) -> None: ...


class BusLike(Protocol):
    @property
    def counters(self) -> BusCounters: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def dial(self, host: str, port: int) -> None: ...
    def hang_up(self, host: str, port: int) -> None: ...
    def change(self, members: MembersChanged) -> None: ...
    def send(self, channel: int, messages: list[Message]) -> int: ...
    def is_blocked(self, channel: int) -> bool: ...
    def send_to(self, node: bytes, service: int, message: bytes, payload: bytes = b"") -> bool: ...
    def drop(self, node: bytes) -> None: ...
    def pause(self, channel: int, paused: bool) -> None: ...
    def rejoin(self, channel: int, sender: bytes) -> None: ...
    def hear(self, link: int, heard: bool) -> None: ...
    def is_reached(self, node: bytes, link: int) -> bool: ...
    def traffic(self, link: int) -> tuple[int, int]: ...


class ListenerLike(Protocol):
    settings: ListenerSettings

    async def start(self, host: str, port: int) -> list[tuple[str, int]]: ...
    async def close(self, *, drain_s_max: float) -> None: ...
    def stop_accepting(self) -> None: ...
    def send(self, connection: int, session: int, frame: Frame, payload: bytes) -> None: ...
    def flush(self) -> None: ...
    def hold(self, connection: int, held: bool) -> None: ...
    def close_connection(self, connection: int) -> None: ...


async def _is_refused(host: str, port: int) -> bool:
    """A process that is dead refuses connections, a node that is only cut off does not. A dying process may have lost
    its links, and still accept for a moment: so it is asked again."""
    for pause_s in _PROBE_PAUSES_S:
        await asyncio.sleep(pause_s)
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _PROBE_S_MAX)
            writer.close()
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
    return False


def _listener(settings: ListenerSettings, frame_bytes_max: int, tell: Callable[[Event], None]) -> ListenerLike:
    return Listener(settings, frame_bytes_max=frame_bytes_max, tell=tell)


@dataclass(frozen=True, slots=True)
class Machinery:
    disk: Callable[..., DiskLike] = Disk
    stream_files: Callable[..., StreamFilesLike] = StreamFiles
    stream_disk: Callable[..., StreamDiskLike] = StreamDisk
    bus: Callable[..., BusLike] = ClusterBus
    listener: Callable[[ListenerSettings, int, Callable[[Event], None]], ListenerLike] = _listener
    message_manager: Callable[..., MessageManager] = MessageManager  # the simulator listens to what it says
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread  # what takes long: loading a store, reading a range
    is_refused: Callable[[str, int], Awaitable[bool]] = _is_refused  # host and port: nobody listens there
    bytes_by_chance: Callable[[int], bytes] = os.urandom
    jitter: Callable[[], float] = random.random
    wall_ms: Callable[[], float] = wall_ms_now
