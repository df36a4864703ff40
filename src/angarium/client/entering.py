"""`async with` of a consumer: inside the block it is open, after it closed."""
from abc import ABC, abstractmethod
from typing import Self

from angarium.client.acknowledging import Taken
from angarium.client.ended import LEAVING_TIMEOUT_S, note_unfinished
from angarium.core.errors import AngariumError


class Entering(ABC):
    @abstractmethod
    async def opened(self) -> None: ...

    @abstractmethod
    async def close(self, *, unsubscribe: bool = False, timeout_s: float = 30.0) -> None: ...

    @abstractmethod
    def all_taken(self) -> list[Taken]: ...

    async def __aenter__(self) -> Self:
        """Wait until the broker has accepted it: what is sent from here on reaches a new subscription. Raises what it
        was refused with."""
        try:
            await self.opened()
        except BaseException as error:
            await self._leave(error)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            await self.close()
        else:
            await self._leave(error)

    async def _leave(self, error: BaseException) -> None:
        """By an exception: what is being processed is not settled by that, and nobody waits for long."""
        for taken in self.all_taken():
            taken.end(is_done=False)
        try:
            await self.close(timeout_s=LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            note_unfinished(error, unfinished)
