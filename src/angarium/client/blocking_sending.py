"""From any thread to the loop: messages to send.

`put` appends under a lock and wakes the loop at most once; the loop takes all that has gathered. When the session's
send buffer is full the rest waits here, and `put` blocks once `WAITING_COST_MAX` is waiting.
"""
import asyncio
import threading
import time
from collections import deque
from typing import NamedTuple

import msgspec

from angarium.client import sending as asynchronous
from angarium.client.blocking_loop import LoopThread
from angarium.client.destination import Destination
from angarium.client.session import Session
from angarium.core.client.gathered import MESSAGE_COST, Options
from angarium.core.errors import AngariumError, Unavailable

WAITING_COST_MAX = 8 * 1024 * 1024


class Sending(msgspec.Struct, gc=False, eq=False):
    """One sent message. `result()` waits for its confirm and returns its id; it raises if the message was refused."""

    sender: "Sender"
    sending: asynchronous.Sending | None = None  # once the loop has it
    error: AngariumError | None = None

    def result(self, timeout_s: float | None = None) -> bytes:
        if self.sending is None or not self.sending.done:
            return self.sender.thread.run(self.sender.outcome(self), timeout_s, what="the confirm")
        return self.sending.outbox.result(self.sending.sequence)

    @property
    def done(self) -> bool:
        return self.error is not None or (self.sending is not None and self.sending.done)

    def __repr__(self) -> str:
        state = "done" if self.done else "waiting"
        return repr(self.sending) if self.sending is not None else f"<Sending, not yet handed over, {state}>"

    @property
    def message_id(self) -> bytes | None:
        """24 bytes; None while the broker has not yet answered the first message to this destination."""
        return self.sending.message_id if self.sending is not None else None


class Item(NamedTuple):
    handle: Sending
    destination: Destination
    body: bytes
    options: Options | None


class Sender:
    def __init__(self, thread: LoopThread, session: Session) -> None:
        self.thread = thread
        self._session = session
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._cost = 0
        self._is_woken = False
        self._waiting_for_room: asyncio.Task[None] | None = None
        self._unseen: AngariumError | None = None

    # -- in any thread ---------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self._cost >= WAITING_COST_MAX

    @property
    def waiting_count(self) -> int:
        """Messages that the loop has not taken yet."""
        return len(self._items)

    def put(
        self, destination: Destination, body: bytes, options: Options | None, timeout_s: float | None
    ) -> Sending:
        handle = Sending(self)
        with self._changed:
            if self._cost >= WAITING_COST_MAX:
                self._wait_for_room(timeout_s)
            self._items.append(Item(handle, destination, body, options))
            self._cost += len(body) + MESSAGE_COST
            is_woken, self._is_woken = self._is_woken, True
        if not is_woken:
            self.thread.loop.call_soon_threadsafe(self._drain)
        return handle

    def _wait_for_room(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._cost >= WAITING_COST_MAX:
            rest_s = None if deadline is None else deadline - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                raise Unavailable(f"no room in the send buffer within {timeout_s:g} s: the broker confirms nothing")
            self._changed.wait(rest_s)

    # -- in the loop -----------------------------------------------------------------------------

    async def outcome(self, handle: Sending) -> bytes:
        await self.drained()
        if handle.error is not None:
            raise handle.error
        assert handle.sending is not None
        return await handle.sending

    async def flush(self) -> None:
        await self.drained()
        await self._session.flush()
        self.raise_unseen()

    def raise_unseen(self) -> None:
        error, self._unseen = self._unseen, None
        if error is not None:
            raise error

    def forget_unseen(self) -> None:
        self._unseen = None

    async def drained(self) -> None:
        """Everything put so far is in the session."""
        self._drain()
        while self._waiting_for_room is not None:
            await asyncio.wait([self._waiting_for_room])

    async def drained_within(self, limit_s: float) -> int:
        """Like `drained`, but not for longer; how many are left."""
        deadline = time.monotonic() + limit_s
        self._drain()
        while self._waiting_for_room is not None and (rest_s := deadline - time.monotonic()) > 0:
            await asyncio.wait([self._waiting_for_room], timeout=rest_s)
        with self._changed:
            return len(self._items)

    def _drain(self) -> None:
        if self._waiting_for_room is not None:
            return
        with self._changed:
            items, self._items = self._items, deque()
            self._cost, self._is_woken = 0, False
            self._changed.notify_all()
        is_usable = self._session.is_usable
        while items:
            handle, destination, body, options = items[0]
            try:
                if not is_usable:
                    self._session.check_usable()
                handle.sending = self._session.send_with(destination, body, options)
            except Unavailable as error:
                if self._session.is_usable:
                    self._drain_later(items)
                    return
                handle.error = self._unseen = error
            except AngariumError as error:
                handle.error = self._unseen = error
            items.popleft()

    def _drain_later(self, rest: deque[Item]) -> None:
        with self._changed:
            self._cost += sum(len(item.body) + MESSAGE_COST for item in rest)
            rest.extend(self._items)
            self._items = rest
            self._is_woken = True  # until there is room
        self._waiting_for_room = asyncio.get_running_loop().create_task(self._wait_and_drain())

    async def _wait_and_drain(self) -> None:
        try:
            await self._session.room()
        finally:
            self._waiting_for_room = None
        self._drain()
