"""A session of the blocking face: see `client.blocking`."""
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, Self, Unpack, cast

from angarium.client import browsing as asynchronous_browsing
from angarium.client import connection as asynchronous
from angarium.client import message as asynchronous_message
from angarium.client import session as asynchronous_session
from angarium.client.blocking_browsing import Browser
from angarium.client.blocking_consumer import Consumer, Message, ThreadedConsumer
from angarium.client.blocking_listening import Listener
from angarium.client.blocking_loop import LoopThread
from angarium.client.blocking_sending import Sender, Sending
from angarium.client.blocking_streams import OutgoingStream
from angarium.client.destination import Destination, Pattern, Queue, Topic, resolve
from angarium.client.ended import LEAVING_TIMEOUT_S, note_unfinished
from angarium.client.fields import Body, MessageFields, encode_body, make_options
from angarium.client.pattern_browsing import PatternBrowser
from angarium.client.requesting import reply_fields
from angarium.client.stream_sending import Source, StreamContext
from angarium.client.subscribing import PREFETCH_DEFAULT
from angarium.core.errors import AngariumError, Unavailable

_resolved = lru_cache(maxsize=1_024)(resolve)


class Session:
    """Made by `Connection.session`. What one thread sends to one destination stays in order."""

    def __init__(
        self,
        thread: LoopThread,
        session: asynchronous_session.Session,
        connection: asynchronous.Connection,
        forget: Callable[["Session"], None],
    ) -> None:
        self._thread = thread
        self._session = session
        self._connection = connection
        self._forget = forget
        self._sender = Sender(thread, session)
        self._notes = session.is_transacted or session.acknowledge_mode != "individual"
        self._listeners: list[Listener] = []
        self._turn = threading.Lock()  # of the listeners' callbacks
        self.is_failing = False  # an exception ends it: what is being processed is not settled by that

    def __repr__(self) -> str:
        return f"<blocking.Session {self._session.number}, {'open' if self._session.is_usable else 'closed'}>"

    # -- sending ---------------------------------------------------------------------------------

    def send(
        self,
        destination: Destination,
        body: Body,
        *,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Sending:
        """Queue one message; `result()` of what is returned waits for the confirm. See `angarium.Session.send`.

        Blocks while the send buffer is full, `timeout_s` at most. Raises `Rejected` for what can never be sent.
        """
        self._session.check_usable()
        _resolved(destination)
        packed, content = encode_body(body)
        options = make_options(content, now_ms=int(time.time() * 1000), **fields)
        if len(packed) > self._connection.limits.body_bytes_max:
            self._connection.limits.check(str(destination), len(packed), 0)
        return self._sender.put(destination, packed, options, timeout_s)

    def send_many(
        self,
        destination: Destination,
        bodies: Iterable[Body],
        *,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> int:
        """Send all, in bounded memory, and wait for all confirms; returns how many. Raises the first failure.
        `timeout_s` bounds each wait, for room and for the last confirms."""
        count = 0
        for body in bodies:
            self.send(destination, body, timeout_s=timeout_s, **fields)
            count += 1
        self.flush(timeout_s)
        return count

    def send_stream(
        self, destination: Destination, source: Source, *, timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Sending:  # fmt: skip
        """Send one message whose body is all that `source` has, of any length: a file, or an iterable of bytes, read in
        another thread. Returns when all of it is durable and the message is published; see
        `angarium.Session.send_stream`."""

        async def send() -> Sending:
            await self._sender.drained()
            return Sending(self._sender, await self._session.send_stream(destination, source, **fields))

        return self._thread.run(send(), timeout_s, what="storing the stream")

    def open_stream(self, destination: Destination, **fields: Unpack[MessageFields]) -> OutgoingStream:
        """For a body that comes piece by piece: `with session.open_stream(name) as stream: stream.write(piece)`."""

        async def open_stream() -> StreamContext:
            await self._sender.drained()
            return self._session.open_stream(destination, **fields)

        return OutgoingStream(self._thread, self._sender, self._thread.run(open_stream()))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent so far has its outcome; raise the first failure that nobody has seen."""
        self._thread.run(self._sender.flush(), timeout_s, what="confirming what was sent")

    def try_send(self, destination: Destination, body: Body, **fields: Unpack[MessageFields]) -> Sending | None:
        """`send`, unless it would have to wait: then None, and nothing is sent."""
        if self.is_blocked(destination) or self._sender.is_full:
            return None
        return self.send(destination, body, **fields)

    def unblocked(self, destination: Destination, timeout_s: float | None = None) -> None:
        """Wait until the destination takes messages; returns at once if it does."""
        self._thread.run(self._session.unblocked(destination), timeout_s, what=f"unblocking {destination}")

    def on_blocked(self, callback: Callable[[str, str], None]) -> Callable[[], None]:
        """As `angarium.Session.on_blocked`; called in a thread of the client's, so it has to be quick."""
        return self._session.on_blocked(callback)

    def is_blocked(self, destination: Destination) -> bool:
        """The broker cannot take more for this destination now: what is sent waits."""
        return self._session.is_blocked(destination)

    def blocked_reason(self, destination: Destination) -> str:
        """Why what is sent to this destination waits; empty if it does not."""
        return self._session.blocked_reason(destination)

    @property
    def unconfirmed_count(self) -> int:
        """Messages that were sent and have no outcome yet."""

        async def count() -> int:
            return self._session.unconfirmed_count + self._sender.waiting_count

        return self._thread.run(count())

    # -- consuming -------------------------------------------------------------------------------

    def consume(
        self,
        destination: Destination,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        durable: str | None = None,
        shared: bool | str = False,
        selector: str = "",
        start: Literal["next", "oldest"] = "next",
        no_local: bool = False,
        exclusive: bool = False,
    ) -> Consumer:
        """Open a consumer; see `angarium.Session.consume`."""

        async def consume() -> Consumer:
            consumer = self._session.consume(
                destination, prefetch=prefetch, durable=durable, shared=shared, selector=selector, start=start,
                no_local=no_local, exclusive=exclusive,
            )  # fmt: skip
            assert isinstance(consumer, ThreadedConsumer)
            return Consumer(self._thread, consumer, notes=self._notes)

        return self._thread.run(consume())

    def consume_matching(
        self,
        pattern: str | Pattern,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        durable: str | None = None,
        selector: str = "",
        start: Literal["next", "oldest"] = "next",
        no_local: bool = False,
    ) -> Consumer:
        """Open one consumer over all topics whose names match; see `angarium.Session.consume_matching`."""

        async def consume() -> Consumer:
            consumer = self._session.consume_matching(
                pattern, prefetch=prefetch, durable=durable, selector=selector, start=start, no_local=no_local
            )
            return Consumer(self._thread, consumer, notes=self._notes)

        return self._thread.run(consume())

    def receive(self, destination: Destination, timeout_s: float | None = None) -> Message | None:
        """One message, or None if there was none within the time. Nothing beyond it is fetched in advance."""
        message = self._thread.run(self._session.receive(destination, timeout_s))
        assert message is None or isinstance(message, Message)
        return message

    def browse(
        self, destination: Destination, selector: str = "", *, timeout_s: float | None = None
    ) -> Iterator[Message]:
        """Look at what lies in a queue without taking it; see `angarium.Session.browse`. `timeout_s` bounds each wait
        for a page."""

        async def browse() -> asynchronous_browsing.Browser:
            return self._session.browse(destination, selector, browser_type=Browser)

        return self._pages(self._thread.run(browse()), timeout_s)

    def browse_matching(
        self, pattern: str | Pattern, selector: str = "", *, timeout_s: float | None = None
    ) -> Iterator[Message]:
        """`browse` for all that match; see `angarium.Session.browse_matching`."""

        async def browse() -> PatternBrowser:
            return self._session.browse_matching(pattern, selector, browser_type=Browser)

        return self._pages(self._thread.run(browse()), timeout_s)

    def _pages(
        self, browser: asynchronous_browsing.Browser | PatternBrowser, timeout_s: float | None
    ) -> Iterator[Message]:
        while page := self._thread.run(browser.next_page(), timeout_s, what="browsing"):
            yield from cast(list[Message], page)

    def unsubscribe(self, destination: Destination, durable_name: str, timeout_s: float | None = None) -> None:
        """End a durable subscription; what it has not settled is gone."""
        self._thread.run(self._session.unsubscribe(destination, durable_name), timeout_s, what="unsubscribing")

    def listen(
        self, destination: Destination, callback: Callable[[asynchronous_message.Message], None], **options: Any
    ) -> Listener:
        """Call `callback` for each message, in a thread of its own; `options` are those of `consume`."""
        self._listeners = [listener for listener in self._listeners if not listener.consumer.is_ended]
        listener = Listener(self.consume(destination, **options), callback, self._turn)
        self._listeners.append(listener)
        return listener

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Settle all that the session has handed out so far, whatever its mode."""
        self._session.acknowledge()

    def recover(self, timeout_s: float | None = None) -> None:
        """Give back all that is unsettled; see `angarium.Session.recover`."""
        self._thread.run(self._session.recover(), timeout_s, what="recovering")

    def commit(self, timeout_s: float | None = None) -> None:
        """Make the transaction take effect; see `angarium.Session.commit`. Raises what could not be sent in it: then
        roll it back."""

        async def commit() -> None:
            await self._sender.drained()
            self._sender.raise_unseen()
            await self._session.commit()

        self._thread.run(commit(), timeout_s, what="committing")

    def rollback(self, timeout_s: float | None = None) -> None:
        """Undo the transaction; see `angarium.Session.rollback`."""

        async def rollback() -> None:
            await self._sender.drained()
            self._sender.forget_unseen()
            await self._session.rollback()

        self._thread.run(rollback(), timeout_s, what="rolling back")

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end of the block; roll back if it raises."""
        self._session.check_transacted("transaction()")
        try:
            yield self
        except BaseException as error:
            leave(self.rollback, error)
            raise
        self.commit()

    # -- with an answer --------------------------------------------------------------------------

    def request(
        self,
        destination: Destination,
        body: Body,
        *,
        timeout_s: float | None = 30.0,
        **fields: Unpack[MessageFields],
    ) -> asynchronous_message.Message:
        """Send a message and wait for the reply, which is settled already; see `angarium.Session.request`."""
        return self._thread.run(self._session.request(destination, body, timeout_s=timeout_s, **fields))

    def reply(
        self, request: asynchronous_message.Message, body: Body, **fields: Unpack[MessageFields]
    ) -> Sending:
        """Answer a request, where its sender waits for it."""
        to, whole = reply_fields(request, fields)
        return self.send(to, body, **whole)

    def temporary_queue(self) -> Queue:
        """A queue of its own, which vanishes with the connection."""
        return self._thread.run(self._session.temporary_queue())

    def temporary_topic(self) -> Topic:
        """A topic of its own, which vanishes with the connection."""
        return self._thread.run(self._session.temporary_topic())

    def sync(self, timeout_s: float | None = None) -> None:
        """Wait until every settlement so far is durable."""
        self._thread.run(self._session.sync(), timeout_s, what="making settlements durable")

    # -- the end ---------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Wait until what was sent is confirmed and what was settled is durable, then end the session; see
        `angarium.Session.close`."""
        limit_s = self._connection.close_timeout_s if timeout_s is None else timeout_s

        async def close() -> None:
            deadline = self._thread.loop.time() + limit_s
            left_count = await self._sender.drained_within(limit_s)
            self._session.is_failing = self.is_failing
            try:
                await self._session.close(max(0.0, deadline - self._thread.loop.time()))
            except Unavailable as error:
                raise Unavailable(f"{error}; {left_count:,} more did not leave") if left_count else error from None
            self._sender.raise_unseen()

        self.check_outside()
        for listener in self._listeners:
            listener.stop(limit_s)
        self._forget(self)
        self._thread.run(close())

    def check_outside(self) -> None:
        """Raise if one of its callbacks asks for its end."""
        for listener in self._listeners:
            listener.check_outside()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.is_failing = error is not None
        leave(self.close, error)


def leave(close: Callable[[float | None], None], error: BaseException | None) -> None:
    """Close by the end of a block, or by what was raised in it."""
    try:
        close(None if error is None else LEAVING_TIMEOUT_S)
    except AngariumError as unfinished:
        if error is None:
            raise
        note_unfinished(error, unfinished)
