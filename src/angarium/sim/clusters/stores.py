"""The stores of a simulated machine: those of replicas come and go as the cluster decides, as on a real disk.

    open_later   a directory that is there, or a new one
    remove       renamed, after a while, and gone: a crash before that leaves all of it, one after it nothing
"""
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from angarium.node.cluster.stores import Stores
from angarium.store.interface import Store

_WORK_S_MAX = (0.02, 0.02, 2.0)  # many large files take long


@dataclass(frozen=True, slots=True, kw_only=True)
class SimStores(Stores):
    opened: Callable[[str], Store]  # of a group
    removed: Callable[[str], None]
    stored: Callable[[str], bool]
    chance: Random

    @property
    def can_open(self) -> bool:
        return True

    def has(self, group: str) -> bool:
        return self.stored(group)

    async def open_later(self, group: str) -> Store:
        await self._work()
        return self.opened(group)

    async def remove(self, group: str) -> None:
        await self._work()
        self.removed(group)
        await self._work()

    async def _work(self) -> None:
        await asyncio.sleep(self.chance.random() * self.chance.choice(_WORK_S_MAX))
