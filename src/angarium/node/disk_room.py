"""How much the disk can still take, looked at again and again while somebody has set a limit for it, until `stop`."""
import asyncio
from collections.abc import Callable

from angarium.store.interface import Store

LOOK_EVERY_S = 1.0


class DiskRoom:
    """`free_bytes_min`: the limit now, 0 for none; `told` gets the bytes that the disk has room for."""

    def __init__(self, store: Store, free_bytes_min: Callable[[], int], told: Callable[[int], None]) -> None:
        self._store = store
        self._free_bytes_min = free_bytes_min
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)
        if (free_bytes_min := self._free_bytes_min()) > 0:
            room_bytes = self._store.room_bytes()
            if room_bytes < 2 * free_bytes_min:
                self._store.make_room()
            self._told(room_bytes)

    def stop(self) -> None:
        self._timer.cancel()
