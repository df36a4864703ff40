"""Those who read a replica's store in threads of their own: a thread cannot be called back, so the store is closed only
when the last of them is done, and nobody begins after that was asked for."""
import asyncio
from collections.abc import Callable
from typing import TypeVar

from angarium.core.errors import LocalProtocolError
from angarium.node.cluster.machinery import Machinery
from angarium.store.interface import Store

_Read = TypeVar("_Read")


class StoreReaders:
    def __init__(self, store: Store, machinery: Machinery) -> None:
        self.is_closing = False  # then `read` must not be called any more
        self._store = store
        self._machinery = machinery
        self._under_way = 0
        self._none_left = asyncio.Event()

    async def read(self, work: Callable[..., _Read], *arguments: object) -> _Read:
        """`work(store, *arguments)`. Nobody cancels this: the thread would go on."""
        if self.is_closing:
            raise LocalProtocolError(f"{getattr(work, '__name__', work)} in a store that is being closed")
        self._under_way += 1
        try:
            read: _Read = await self._machinery.in_thread(work, self._store, *arguments)
            return read
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._none_left.set()

    async def close_store(self) -> None:
        self.is_closing = True
        while self._under_way:
            self._none_left.clear()
            await self._none_left.wait()
        await self._machinery.in_thread(self._store.close)
