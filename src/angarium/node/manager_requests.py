"""Requests of the node itself to message managers, and their replies (see `core/session/own_session.py`)."""
import asyncio
import itertools
from collections.abc import Callable

from msgspec.structs import replace

from angarium.core.session.events import AskManager, ManagerReplied
from angarium.core.wire.frames import Reply, Request

REPLY_S_MAX = 10.0


class ManagerRequests:
    def __init__(self, ask: Callable[[AskManager], None]) -> None:
        self._ask = ask
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    async def ask(self, request: Request) -> Reply:
        number = -next(self._numbers)  # those of commands that came as messages are above 0
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._ask(AskManager(replace(request, number=number)))
        try:
            return await asyncio.wait_for(waiting, REPLY_S_MAX)
        except TimeoutError:
            reason = f"no message manager replied within {REPLY_S_MAX:g} s; it may have been done or not"
            return Reply(request.number, "request-lost", f"{request.command}: {reason}")
        finally:
            del self._waiting[number]

    def replied(self, command: ManagerReplied) -> None:
        waiting = self._waiting.get(command.frame.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.frame)
