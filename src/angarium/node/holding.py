"""Who is not read from for now: a pure machine.

A connection is held for one of two reasons, and let go when half of what was too much is gone:

    bus     more of its own frames wait to be handled than may, whatever they are
    disk    the node has more unwritten than it may, and this connection asked for more to be written

While nothing can be written (a full disk) only what makes room counts as unwritten: held back, the settlements that
would empty the disk could not come. Publishing is bounded then by each session's window, and by the Block that its
producers are told.
"""
from collections.abc import Sequence

from angarium.core.wire.codec import Received
from angarium.core.wire.frames import Publish, Settle

FRAMES_MAX = 1_000
BYTES_MAX = 4 << 20


class Holding:
    def __init__(self, *, unwritten_bytes_max: int) -> None:
        self.unwritten_bytes_max = unwritten_bytes_max
        self._disk_is_full = False
        self._frames: dict[int, int] = {}  # on the bus, by connection
        self._bytes: dict[int, int] = {}
        self._for_bus: set[int] = set()
        self._for_disk: dict[int, None] = {}

    def is_held(self, connection: int) -> bool:
        return connection in self._for_bus or connection in self._for_disk

    def posted(self, connection: int, frames: int, size_bytes: int) -> None:
        """So many frames of this connection were put on the bus, of so many bytes together."""
        self._frames[connection] = self._frames.get(connection, 0) + frames
        self._bytes[connection] = self._bytes.get(connection, 0) + size_bytes

    def received(self, connection: int, received: Sequence[Received]) -> bool:
        """Whether the connection, of which this was received and posted, is to be held from now on."""
        held = self.is_held(connection)
        if self._frames.get(connection, 0) > FRAMES_MAX or self._bytes.get(connection, 0) > BYTES_MAX:
            self._for_bus.add(connection)
        if self._disk_is_full and any(type(item.frame) in (Publish, Settle) for item in received):
            self._for_disk[connection] = None
        return not held and self.is_held(connection)

    def handled(self, connection: int, size_bytes: int) -> bool:
        """A frame was taken off the bus; whether its connection is to be let go."""
        frames = self._frames.get(connection)
        if frames is None:
            return False  # its connection has ended
        self._frames[connection] = frames = frames - 1
        self._bytes[connection] = total_bytes = self._bytes[connection] - size_bytes
        if connection not in self._for_bus or frames > FRAMES_MAX // 2 or total_bytes > BYTES_MAX // 2:
            return False
        self._for_bus.remove(connection)
        return connection not in self._for_disk

    def disk_changed(self, *, unwritten_bytes: int, freeing_bytes: int, is_blocked: bool) -> list[int]:
        """The disk has more or less to do than before; who is to be let go."""
        counted = freeing_bytes if is_blocked else unwritten_bytes
        if counted > self.unwritten_bytes_max:
            self._disk_is_full = True
        elif counted <= self.unwritten_bytes_max // 2:
            self._disk_is_full = False
            released, self._for_disk = self._for_disk, {}
            return [connection for connection in released if connection not in self._for_bus]
        return []

    def ended(self, connection: int) -> None:
        self._frames.pop(connection, None)
        self._bytes.pop(connection, None)
        self._for_bus.discard(connection)
        self._for_disk.pop(connection, None)
