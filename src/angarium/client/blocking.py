"""The blocking face of the client: the same names without async, for programs that have no event loop.

The real client runs on a loop in a background thread for each connection (uvloop's, if it is installed). Every object
may be used from any thread. Sending and settling only append to a list and wake the loop; consuming fetches what lies
ready as a whole: so neither costs a change of threads for each message. Whatever waits takes `timeout_s` and
raises `Unavailable` when that is over; Ctrl-C ends it.
"""
import atexit
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

from angarium.client import connection as asynchronous
from angarium.client import session as asynchronous_session
from angarium.client.acknowledging import Acknowledge
from angarium.client.blocking_consumer import Consumer, Message, ThreadedConsumer
from angarium.client.blocking_log import BlockingLog
from angarium.client.blocking_loop import LoopThread
from angarium.client.blocking_sending import Sending
from angarium.client.blocking_session import Session, leave
from angarium.client.blocking_staging import BlockingStage
from angarium.client.buffer import Limits
from angarium.client.connection import CLOSE_TIMEOUT_S, RECONNECT_DEFAULT, Answer
from angarium.client.log import LogDescription
from angarium.client.staging import Stage, StagedPart
from angarium.core.client.reconnect import ReconnectPolicy
from angarium.core.errors import AngariumError

__all__ = ["Connection", "Consumer", "Message", "Sending", "Session", "connect"]

EXIT_TIMEOUT_S = 5.0  # to confirm what was sent, when a program ends without closing its connection


def connect(
    addresses: str | Sequence[str],
    *,
    name: str = "",
    connect_timeout_s: float = 10.0,
    reconnect: ReconnectPolicy = RECONNECT_DEFAULT,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
) -> "Connection":
    """Connect now, to one of `addresses`; see `angarium.connect`. Use the result with `with`, or close it yourself."""
    connection = asynchronous.connect(
        addresses, name=name, connect_timeout_s=connect_timeout_s, reconnect=reconnect, close_timeout_s=close_timeout_s
    )
    return Connection(connection)


class Connection:
    def __init__(self, connection: asynchronous.Connection) -> None:
        self._connection = connection
        self._thread = LoopThread("angarium-client")
        self._sessions: set[Session] = set()  # not closed
        try:
            self._thread.run(connection.open())
        except BaseException:
            self._thread.stop()
            raise
        _open.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._thread.is_stopped else "connected" if self.is_connected else "not connected"
        return f"<blocking.Connection to node {self.node!r}, {state}>"

    @property
    def node(self) -> str:
        """Name of the broker's node."""
        return self._connection.node

    @property
    def limits(self) -> Limits:
        """What the broker takes."""
        return self._connection.limits

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    @property
    def loss(self) -> str:
        """Why it is not connected, once it was."""
        return self._connection.loss

    @property
    def on_change(self) -> Callable[[], None] | None:
        """Called when `is_connected` has changed, in a thread of the client's: it has to be quick."""
        return self._connection.on_change

    @on_change.setter
    def on_change(self, callback: Callable[[], None] | None) -> None:
        self._connection.on_change = callback

    def session(self, *, acknowledge: Acknowledge = "individual", transacted: bool = False) -> "Session":
        """A new session: use it with `with`, or close it yourself. See `angarium.Connection.session`."""

        async def session() -> asynchronous_session.Session:
            return self._connection.session(
                acknowledge=acknowledge, transacted=transacted, consumer_type=ThreadedConsumer
            )

        made = Session(self._thread, self._thread.run(session()), self._connection, self._sessions.discard)
        self._sessions.add(made)
        return made

    def request(
        self, command: str, arguments: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Answer:
        """One administration command; see `angarium.Connection.request`."""
        return self._thread.run(self._connection.request(command, arguments), timeout_s, what=command)

    def log(self, destination: str) -> BlockingLog:
        """What the destination has stored, to be read by position; see `angarium.Connection.log`."""
        return BlockingLog(self._thread, self._connection.log(destination))

    def logs(self, prefix: str = "", timeout_s: float | None = None) -> list[LogDescription]:
        """What the logs of all destinations hold whose names begin so."""
        return self._thread.run(self._connection.logs(prefix), timeout_s, what="listing logs")

    def stage(self, query: str, batch: int) -> BlockingStage:
        """For what one task stages; see `client.staging`."""

        async def stage() -> Stage:
            return self._connection.stage(query, batch)

        return BlockingStage(self._thread, self._thread.run(stage()))

    def commit_stage(
        self, query: str, batch: int, parts: Sequence[StagedPart], timeout_s: float | None = None
    ) -> None:
        """Publish what is staged, once; see `client.staging.commit_stage`."""
        commit = self._connection.commit_stage(query, batch, parts)
        self._thread.run(commit, timeout_s, what=f"the commit of {query!r}, batch {batch}")

    def abort_stage(self, query: str, batch: int, parts: Sequence[StagedPart], timeout_s: float | None = None) -> None:
        """Drop what is staged; see `client.staging.abort_stage`."""
        abort = self._connection.abort_stage(query, batch, parts)
        self._thread.run(abort, timeout_s, what=f"dropping {query!r}, batch {batch}")

    def close(self, timeout_s: float | None = None) -> None:
        """Close every session, waiting for confirms, then the connection; raises what a session's closing raises.
        `timeout_s`: instead of `close_timeout_s`."""
        if self._thread.is_stopped:
            return
        for session in list(self._sessions):
            session.check_outside()
        failure: AngariumError | None = None
        try:
            for session in list(self._sessions):
                try:
                    session.close(timeout_s)
                except AngariumError as error:
                    failure = failure or error
            self._thread.run(self._connection.close(timeout_s))
        finally:
            _open.discard(self)
            self._thread.stop()
        if failure is not None:
            raise failure

    def close_at_exit(self) -> None:
        """The program ends without having closed it: confirm what can be confirmed soon, and say what could not."""
        warnings.warn(f"{self!r} was not closed: use `with`, or call its close()", ResourceWarning, stacklevel=2)
        try:
            self.close(EXIT_TIMEOUT_S)
        except AngariumError as error:
            warnings.warn(f"{self!r} was not closed in time: {error}", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        for session in list(self._sessions):
            session.is_failing = error is not None
        leave(self.close, error)


_open: set[Connection] = set()


@atexit.register
def _close_all() -> None:
    for connection in list(_open):
        connection.close_at_exit()
