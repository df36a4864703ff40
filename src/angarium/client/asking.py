"""What a session asks the broker for beside sending and consuming: a look at a queue, temporary destinations, the end
of a subscription."""
from typing import TYPE_CHECKING

from angarium.client.browsing import Browser
from angarium.client.destination import (
    Destination,
    Pattern,
    Queue,
    Topic,
    checked_pattern,
    name_of,
    plain_text,
    resolve,
)
from angarium.client.pattern_browsing import PatternBrowser
from angarium.client.session_part import SessionPart
from angarium.client.stream_reading import IncomingStream
from angarium.core.names import check_name

if TYPE_CHECKING:
    from angarium.client.connection import Connection


class Asking(SessionPart):
    _connection: "Connection"

    def browse(
        self, destination: Destination, selector: str = "", *, browser_type: type[Browser] = Browser
    ) -> Browser:
        """Look at what lies in a queue without taking it: an asynchronous iterator of messages, which can be read and
        not settled. See `client.browsing` for their order, and what happens to those that come and go meanwhile."""
        self.check_usable()
        name, _ = resolve(destination, reading=True)

        def open_stream(position: int, size: int) -> IncomingStream:
            return self.streams.open_reader(-1, position, size, name)

        return browser_type(self._connection.request, name, selector, open_stream)

    def browse_matching(
        self, pattern: str | Pattern, selector: str = "", *, browser_type: type[Browser] = Browser
    ) -> PatternBrowser:
        """`browse` for all that match, one after the other, by name; a string is a glob over queues."""
        self.check_usable()
        wanted = checked_pattern(Pattern(pattern, kind="queue") if isinstance(pattern, str) else pattern)
        return PatternBrowser(
            self._connection.request, wanted, lambda name: self.browse(name, selector, browser_type=browser_type)
        )

    async def temporary_queue(self) -> Queue:
        """A queue of its own, which vanishes with the connection."""
        return Queue(await self._temporary("queue"))

    async def temporary_topic(self) -> Topic:
        """A topic of its own, which vanishes with the connection."""
        return Topic(await self._temporary("topic"))

    async def _temporary(self, kind: str) -> str:
        self.check_usable()
        answer = await self._connection.request("destination.create", {"temporary": True, "kind": kind})
        return str(answer.result["name"] if isinstance(answer.result, dict) else answer.result)

    async def unsubscribe(self, destination: Destination, durable_name: str) -> None:
        """End a durable subscription, which nobody consumes from; what it has not settled is gone. Raises `Rejected` if
        there is none of that name, or somebody consumes from it."""
        self.check_usable()
        durable_name = plain_text(durable_name, "a subscription's name")
        check_name(durable_name, what="subscription")
        arguments = {"name": name_of(destination), "subscription": durable_name}
        await self._connection.request("subscription.remove", arguments)
