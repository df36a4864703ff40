"""From the loop to any thread: messages, in lists; and back: their settlements, gathered under a lock."""
import io
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Self, cast

from angarium.client import consumer as asynchronous
from angarium.client import message as asynchronous_message
from angarium.client.blocking_loop import LoopThread
from angarium.client.blocking_streams import open_file
from angarium.client.ended import LEAVING_TIMEOUT_S, note_unfinished
from angarium.client.pattern_consumer import PatternConsumer
from angarium.client.stream_reading import IncomingStream
from angarium.core.errors import AngariumError, LocalProtocolError
from angarium.core.wire.frames import Outcome

if TYPE_CHECKING:
    from angarium.client.session import Session

FETCH_MAX = 1_000  # messages in one change of threads


class Message(asynchronous_message.Message, gc=False, eq=False):
    """One delivery of one message. Settle, reject or release it once; `Session.sync` waits until that is durable."""

    def settle(self) -> None:  # type: ignore[override]  # nothing to await here
        """Done with: it will not be delivered again."""
        self._settle_late(Outcome.SETTLE)

    def reject(self) -> None:  # type: ignore[override]
        """It cannot be processed: taken off the queue or subscription, and counted as rejected."""
        self._settle_late(Outcome.REJECT)

    def release(self) -> None:  # type: ignore[override]
        """Give it back: it is delivered again, to whoever comes first, with a higher redelivery count."""
        self._settle_late(Outcome.RELEASE)

    def open(self) -> io.BufferedReader:  # type: ignore[override]  # a file, not something to be awaited
        """Read the body as a file: from the broker, piece by piece, if it was sent as a stream (`body` is empty then).

        It can be read while the message is not settled, as often as one likes.
        """
        return cast(ThreadedConsumer, self.delivery.consumer).open_file(super().open)

    def _settle_late(self, outcome: Outcome) -> None:
        cast(ThreadedConsumer, self.delivery.consumer).settle_late(self, outcome)


class ThreadedConsumer(asynchronous.Consumer):
    """The asynchronous consumer, taking settlements from any thread."""

    message_type = Message
    hands_out = False  # the blocking consumer in front of it does

    def __init__(self, session: "Session", number: int, destination: str, prefetch: int) -> None:
        super().__init__(session, number, destination, prefetch)
        self._loop = session.loop
        self._lock = threading.Lock()
        self._late: list[tuple[Message, Outcome]] = []

    def open_file(self, open_stream: Callable[[], IncomingStream]) -> io.BufferedReader:
        return open_file(open_stream, self._loop)

    def resize_soon(self, prefetch: int) -> None:
        self._loop.call_soon_threadsafe(self.resize, prefetch)

    def unread(self) -> Iterator[asynchronous_message.Message]:
        return chain(self._ready_ones(), [message for message in list(self.fetched) if self._has(message)])

    def give_back_ready(self) -> None:
        super().give_back_ready()
        others = [message for message in list(self.fetched) if not self._has(message)]
        self.fetched.clear()
        self.fetched.extend(others)

    def _has(self, message: asynchronous_message.Message) -> bool:
        """Consumers that follow a pattern share what is on its way."""
        return message.delivery.consumer is self

    async def receive_alone(self, timeout_s: float | None) -> asynchronous_message.Message | None:
        if self.taken is not None:
            self.taken.asked()
        message = await self.receive(timeout_s)
        if message is not None and self.taken is not None:
            self.taken.messages.append(message)
        return message

    def settle_late(self, message: Message, outcome: Outcome) -> None:
        with self._lock:
            self.check_settling(message, outcome)
            message.outcome = outcome
            self._late.append((message, outcome))
            is_first = len(self._late) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self.flush_now)

    def flush_now(self) -> None:
        with self._lock:
            late, self._late = self._late, []
        for message, outcome in late:
            message.outcome = 0
            try:
                self.settle(message, outcome)
            except LocalProtocolError:  # closed in this moment: it has gone back
                message.outcome = outcome
                self.lost_count += 1
        super().flush_now()


class Consumer:
    """Made by `Session.consume`. Iterate over it, or call `receive`; close it when done."""

    def __init__(self, thread: LoopThread, consumer: ThreadedConsumer | PatternConsumer, *, notes: bool) -> None:
        self._thread = thread
        self._consumer = consumer
        self._ready = consumer.fetched
        self._notes = notes  # what it hands out: the session settles it, at its time

    @property
    def is_ended(self) -> bool:
        return self._consumer.is_ended

    @property
    def lost_count(self) -> int:
        """Messages settled here that were no longer this consumer's."""
        return self._consumer.lost_count

    @property
    def dropped_count(self) -> int:
        """Messages that the broker dropped because the subscription was too far behind."""
        return self._consumer.dropped_count

    def opened(self, timeout_s: float | None = None) -> None:
        """Wait until the broker has accepted the consumer; raises what it was refused with."""
        self._thread.run(self._consumer.opened(), timeout_s, what=f"opening the consumer of {self.destination!r}")

    @property
    def destination(self) -> str:
        return self._consumer.destination

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> asynchronous_message.Message:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout_s: float | None = None) -> asynchronous_message.Message | None:
        """The next message; None if there was none within the time, or the consumer was closed."""
        if self._notes:
            for taken in self._consumer.all_taken():
                taken.asked()
        while True:
            while self._ready:
                try:
                    message = self._ready.popleft()
                except IndexError:  # another thread was faster
                    break
                if _may_be_handed_out(message):
                    self._note(message)
                    return message
            fetched = self._thread.run(self._consumer.receive_batch(FETCH_MAX, timeout_s))
            if not fetched:
                return None
            self._ready.extend(fetched)

    def receive_batch(self, max: int = FETCH_MAX, timeout_s: float | None = None) -> list[asynchronous_message.Message]:
        """At least one message and what else lies ready, up to `max`; none as for `receive`."""
        first = self.receive(timeout_s)
        messages = [] if first is None else [first]
        while self._ready and len(messages) < max:
            message = self._ready.popleft()
            if _may_be_handed_out(message):
                self._note(message)
                messages.append(message)
        return messages

    def _note(self, message: asynchronous_message.Message) -> None:
        if self._notes and (taken := message.delivery.consumer.taken) is not None:
            taken.messages.append(message)

    def done(self) -> None:
        """The application is done with what it has taken."""
        for taken in self._consumer.all_taken():
            if taken.settles_by_itself:
                taken.asked()

    def failed(self, message: asynchronous_message.Message) -> None:
        """The application did not get through with it."""
        if not message.outcome and not self._consumer.is_transacted and not self._consumer.is_closing:
            message.release()

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages may be here unsettled, from now on; 0: none come until it is more."""

        async def set_prefetch() -> None:
            self._consumer.set_prefetch(prefetch)

        self._thread.run(set_prefetch())

    def close(self, timeout_s: float = 30.0) -> None:
        """Give back what is unsettled; returns when the settlements so far are durable."""
        if not self._consumer.is_closing:
            self._end_taken(is_done=True)
        self._thread.run(self._consumer.close(timeout_s=timeout_s))
        self._ready.clear()

    def _end_taken(self, *, is_done: bool) -> None:
        for taken in self._consumer.all_taken():
            taken.end(is_done=is_done)

    def __enter__(self) -> Self:
        """Wait until the broker has accepted it; raises what it was refused with."""
        try:
            self.opened()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self.close()
            return
        self._end_taken(is_done=False)  # the application did not get through with it: it goes back
        try:
            self.close(LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            note_unfinished(error, unfinished)


def _may_be_handed_out(message: asynchronous_message.Message) -> bool:
    """What has expired on its way from the loop goes back."""
    if message.lost or not message.has_expired:
        return not message.lost
    cast(ThreadedConsumer, message.delivery.consumer).settle_late(cast(Message, message), Outcome.RETURN)
    return False
