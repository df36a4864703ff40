"""A connection as the application sees it, and the way to get one."""
import asyncio
import atexit
import random
import socket
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import msgspec

from angarium.client.acknowledging import Acknowledge, check_mode
from angarium.client.buffer import Limits
from angarium.client.consumer import Consumer
from angarium.client.destination import plain_text
from angarium.client.driver import Driver
from angarium.client.ended import LEAVING_TIMEOUT_S, note_unfinished
from angarium.client.log import Answer as Answer
from angarium.client.log import Log, LogDescription, list_logs
from angarium.client.session import Session
from angarium.client.staging import Stage, StagedPart, abort_stage, commit_stage
from angarium.client.transacted import TransactedSession
from angarium.core.client import events
from angarium.core.client.connection import ConnectionMachine
from angarium.core.client.events import Command
from angarium.core.client.reconnect import ReconnectPolicy, parse_address
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, Unavailable

CLOSE_TIMEOUT_S = 30.0
RECONNECT_DEFAULT = ReconnectPolicy()
_WHOLE_MIN, _WHOLE_MAX = -(1 << 63), (1 << 64) - 1  # a frame carries none beyond them


def connect(
    addresses: str | Sequence[str],
    *,
    name: str = "",
    connect_timeout_s: float = 10.0,
    reconnect: ReconnectPolicy = RECONNECT_DEFAULT,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
) -> "Connection":
    """A connection to one of `addresses`, tried in turn: use it with `async with`, or `await` and close it yourself.

    Raises `Unavailable` if no broker answers within `connect_timeout_s`. After that it comes back by itself whenever
    it is lost, and resumes its sessions. `name` is shown to the broker's operator.
    """
    texts = list(addresses) if isinstance(addresses, Iterable) and not isinstance(addresses, str) else [addresses]
    if not all(isinstance(text, str) for text in texts):
        remedy = "an address is a text, as 'angarium://localhost:4560'; or give a list of them"
        raise LocalProtocolError(f"connect({addresses!r:.50}): {remedy}")
    machine = ConnectionMachine(
        addresses=[parse_address(text) for text in texts],
        name=plain_text(name, "name") or f"{Path(sys.argv[0]).name or 'python'}@{socket.gethostname()}",
        chance=random.Random(),
        connect_timeout_s=connect_timeout_s,
        policy=reconnect,
    )
    return Connection(machine, close_timeout_s=close_timeout_s)


class Connection:
    def __init__(self, machine: ConnectionMachine, *, close_timeout_s: float) -> None:
        self.node = ""  # name of the broker's node
        self.is_connected = False
        self.loss = ""  # why it is not connected, once it was
        self.on_change: Callable[[], None] | None = None  # called when `is_connected` has changed
        self.limits = Limits()
        self._machine = machine
        self.close_timeout_s = close_timeout_s
        self._driver: Driver | None = None
        self._sessions: dict[int, Session] = {}
        self._session_last = 0
        self._requests: dict[int, asyncio.Future[Answer]] = {}
        self._request_last = 0
        self._ready: asyncio.Future[None] | None = None
        self._error: AngariumError | None = None
        self._is_warned = False  # that it was not closed
        _open.add(self)

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise LocalProtocolError("the connection is not open: use `async with angarium.connect(...) as connection`")
        return self._driver

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.driver.loop

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self) -> Self:
        """`async with` and `await` call this."""
        if self._driver is not None:
            raise LocalProtocolError("the connection was opened before; make another one with angarium.connect")
        loop = asyncio.get_running_loop()
        self._driver = Driver(self._machine, self, loop)
        self._ready = loop.create_future()
        try:
            self._driver.handle(events.OpenConnection())
            await self._ready
        except BaseException:
            await self._shut("giving up")
            raise
        return self

    async def close(self, timeout_s: float | None = None) -> None:
        """Close every session, waiting for confirms, then the connection. Raises what the sessions' closing raises,
        after `timeout_s` at the latest, or else `close_timeout_s`."""
        if self._driver is None:
            return
        for session in self._sessions.values():
            session.check_outside()
        try:
            results = await asyncio.gather(
                *(session.close(timeout_s) for session in list(self._sessions.values())), return_exceptions=True
            )
        finally:
            await self._shut("the application closed the connection")
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _shut(self, reason: str) -> None:
        driver = self.driver
        if not driver.is_ended:
            driver.handle(events.CloseConnection(reason))
        await driver.closed()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        for session in self._sessions.values():
            session.is_failing = error is not None
        try:
            await self.close(None if error is None else LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            if error is None:
                raise
            note_unfinished(error, unfinished)

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        self.warn_if_unclosed(warn)

    def warn_if_unclosed(self, warn: Callable[..., None] = warnings.warn) -> None:
        """Forgotten, or still there when the interpreter ends: say so, and loudly if messages are lost by it."""
        driver = self._driver
        if driver is None or driver.is_ended or self._is_warned:
            return
        self._is_warned = True
        unconfirmed = sum(session.unconfirmed_count for session in self._sessions.values())
        text = f"connection to node {self.node!r} was not closed: use `async with`, or await its close()"
        if unconfirmed:
            lost = f"{unconfirmed:,} {'message was' if unconfirmed == 1 else 'messages were'} sent and not confirmed"
            warn(f"{text}; {lost}, and may be lost", RuntimeWarning, source=self)
        else:
            warn(text, ResourceWarning, source=self)

    # -- using -----------------------------------------------------------------------------------

    def session(
        self,
        *,
        acknowledge: Acknowledge = "individual",
        transacted: bool = False,
        consumer_type: type[Consumer] = Consumer,
    ) -> Session:
        """A new session: use it with `async with`, or close it yourself.

        `acknowledge` says when what it receives is settled (`client.acknowledging`); a `transacted` one sends and
        settles at its `commit` only.
        """
        self._check_usable()
        check_mode(acknowledge)
        if transacted and acknowledge != "individual":
            raise LocalProtocolError(f"acknowledge={acknowledge!r}: a transacted session settles by commit() alone")
        number = self._session_last = self._session_last + 1
        close_timeout_s = self.close_timeout_s
        if transacted:
            session: Session = TransactedSession(
                self, number, close_timeout_s=close_timeout_s, consumer_type=consumer_type
            )
        else:
            session = Session(
                self, number, close_timeout_s=close_timeout_s, acknowledge=acknowledge, consumer_type=consumer_type
            )
        self._sessions[number] = session
        return session

    async def request(self, command: str, arguments: dict[str, Any] | None = None) -> Answer:
        """One administration command. Raises `Rejected` if it is refused, `Unavailable` if the connection is lost
        before the answer: it may then have been done or not."""
        self._check_usable()
        command = plain_text(command, "a command")
        if not isinstance(arguments, dict | None):
            raise TypeError(f"{command}: arguments are a dict, not {type(arguments).__name__}")
        try:
            msgspec.msgpack.encode((command, arguments))
        except UnicodeEncodeError as error:  # no frame could carry it, on this connection or the next
            raise Rejected("bad-argument", f"{command}: {error}") from None
        except OverflowError:
            raise Rejected("bad-argument", f"{command}: a whole number is {_WHOLE_MIN:,} to {_WHOLE_MAX:,}") from None
        self._request_last += 1
        number = self._request_last
        future: asyncio.Future[Answer] = self.loop.create_future()
        self.driver.handle(events.Request(number, command, arguments or {}))
        self._requests[number] = future
        try:
            return await future
        finally:
            del self._requests[number]

    def log(self, destination: str) -> Log:
        """What the destination has stored, to be read by position; nothing is taken (`client.log`)."""
        return Log(self.request, plain_text(destination, "a destination's name"))

    async def logs(self, prefix: str = "") -> list[LogDescription]:
        """What the logs of all destinations hold whose names begin so."""
        return await list_logs(self.request, prefix)

    def stage(self, query: str, batch: int) -> Stage:
        """For what one task stages, in a session of its own (`client.staging`)."""
        session = self.session()
        return Stage(session.buffer, self.request, session.close, query, batch)

    async def commit_stage(self, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
        """See `client.staging.commit_stage`."""
        await commit_stage(self.request, query, batch, parts)

    async def abort_stage(self, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
        """See `client.staging.abort_stage`."""
        await abort_stage(self.request, query, batch, parts)

    def _check_usable(self) -> None:
        if self._error is not None:
            raise self._error
        self.driver  # noqa: B018  # raises if it was never opened

    # -- notifications ---------------------------------------------------------------------------

    def notify(self, command: Command) -> None:
        match command:
            case events.MessagesArrived():  # the commonest come first
                self._sessions[command.session].notify(command)
            case (
                events.Confirmed() | events.Refused() | events.ProducerReady() | events.ProducerEnded()
                | events.Blocked() | events.Unblocked()
            ):  # fmt: skip
                self._sessions[command.session].notify_sending(command)
            case events.ConnectionReady():
                self.node, self.is_connected, self.loss = command.node, True, ""
                self.limits.body_bytes_max = command.body_bytes_max
                self.limits.frame_bytes_max = command.frame_bytes_max
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(None)
                self._changed()
            case events.ConnectionLost():
                self.is_connected, self.loss = False, command.reason
                self._changed()
            case events.ConnectionFailed(error=error):
                self._fail(error)
            case events.ConnectionClosed():
                self._fail(LocalProtocolError("the connection is closed; make another one with angarium.connect"))
            case events.RequestAnswered() | events.RequestLost():
                self._answer(command)
            case events.Connect() | events.SendBytes() | events.CloseTransport():
                raise AssertionError(f"{type(command).__name__} is the driver's")
            case _:
                self._sessions[command.session].notify(command)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _answer(self, command: events.RequestAnswered | events.RequestLost) -> None:
        future = self._requests.get(command.number)
        if future is None or future.done():  # given up by the application
            return
        if isinstance(command, events.RequestLost):
            future.set_exception(Unavailable(command.reason))
        elif command.code:
            future.set_exception(Rejected(command.code, command.reason))
        else:
            future.set_result(Answer(command.result, command.payload))

    def _fail(self, error: AngariumError) -> None:
        self._error = error
        self.is_connected = False
        for session in list(self._sessions.values()):
            session.on_ended(error)
        for future in (self._ready, *self._requests.values()):
            if future is not None and not future.done():
                future.set_exception(error)

    def forget_session(self, session: Session) -> None:
        self._sessions.pop(session.number, None)


_open: WeakSet[Connection] = WeakSet()


@atexit.register
def _warn_of_unclosed() -> None:
    for connection in list(_open):
        connection.warn_if_unclosed()
