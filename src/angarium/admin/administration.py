"""Administration commands of one broker, typed.

    administration = Administration(connection)
    for destination in await administration.destinations(): ...

A refusal raises `Rejected` with the broker's code; an answer that we cannot read raises RemoteProtocolError.
"""
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from angarium.admin.model import (
    BrowseAnswer,
    BrowsedMessage,
    Destination,
    Explanation,
    Model,
    NodeStatus,
    Page,
    Part,
    Purged,
    convert,
)
from angarium.admin.places import by_name, combined, names_of, replica_groups
from angarium.admin.requests import Requests
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import format_id, message_id
from angarium.core.malformed import MALFORMED
from angarium.core.patterns import NamePattern
from angarium.core.wire.batch import Batch
from angarium.core.wire.lanes import POSITION_MAX, place_of
from angarium.core.wire.layout import PRIORITY_DEFAULT

PAGE_COUNT = 1_000  # messages in one page of `browse`
PAGE_BYTES = 1 << 20


class Administration:
    def __init__(self, connection: Requests) -> None:
        self._connection = connection

    async def destinations(
        self, *, prefix: str = "", count: int | None = None, matching: NamePattern | None = None, group: int = 0
    ) -> list[Destination]:
        """By name: all, or the first `count`, whose name begins with `prefix`, or matches. `group`: only those of the
        replica group with this number."""
        if matching is not None:
            found = await self.destinations(prefix=matching.prefix, group=group)
            return [destination for destination in found if matching.matches(destination.name)][:count]
        found = []
        while count is None or len(found) < count:
            after = found[-1].name if found else ""
            arguments: dict[str, Any] = {"after": after, "prefix": prefix}
            if count is not None:
                arguments["count"] = count - len(found)
            if group:
                arguments["group"] = group
            page = await self._ask("destination.list", arguments, list[Destination])
            if not page or page[0].name <= after:  # the end; or a broker that knows no pages has told all
                break
            found += page
        return by_name(found)

    async def groups(self) -> dict[str, int]:
        """Names and numbers of a cluster's replica groups; of a broker that is alone there are none."""
        return await replica_groups(self._connection)

    async def describe(self, name: str) -> Destination:
        return combined(await self._of_all("destination.describe", name, Destination))

    async def create(self, name: str, kind: str, **options: Any) -> Destination:
        """Idempotent: one that exists with the same kind and options (see `model.Destination`) is answered as it is."""
        return await self._ask("destination.create", {"name": name, "kind": kind, **options}, Destination)

    async def alter(self, name: str, **options: Any) -> Destination:
        """Other options count from now on; those that are not given stay."""
        return combined(await self._of_all("destination.alter", name, Destination, **options))

    async def explain(self, name: str) -> Explanation:
        """Why messages are not being delivered; of several dead message queues, of the one that holds any."""
        told = await self._of_all("destination.explain", name, Explanation)
        return next((each for each in told if each.code != "nothing-waiting"), told[0])

    async def remove(self, name: str) -> None:
        await self._connection.request("destination.remove", {"name": name})

    async def remove_subscription(self, name: str, subscription: str) -> None:
        await self._connection.request("subscription.remove", {"name": name, "subscription": subscription})

    async def purge(self, name: str) -> int:
        """Take all messages off; how many they were."""
        return sum(each.purged for each in await self._of_all("destination.purge", name, Purged))

    async def status(self) -> NodeStatus:
        return await self._ask("node.status", {}, NodeStatus)

    async def page(
        self, name: str, *, place: int = 0, count: int = PAGE_COUNT, selector: str = "", ends: Sequence[int] = ()
    ) -> Page:
        """Up to `count` messages from `place` on, without taking them, up to the `ends` of an earlier page if there are
        any. An empty page need not be the last."""
        arguments: dict[str, Any] = {"name": name, "place": place, "count": count, "bytes_max": PAGE_BYTES}
        if ends:
            arguments["ends"] = list(ends)
        if selector:
            arguments["selector"] = selector
        return await read_page(self._connection, "destination.browse", arguments, count=count)

    async def browse(
        self, name: str, *, position: int | None = None, count: int, selector: str = ""
    ) -> AsyncIterator[BrowsedMessage]:
        """Up to `count` messages in the order in which they would be received, those that the selector is true of; with
        `position`, from the message there on. What arrives while browsing is not shown. Of a `_DMQ` in several replica
        groups, those of one after the other."""
        if position is not None and not 0 <= position <= POSITION_MAX:
            raise Rejected("bad-argument", f"no message can have position {position}: they are 0 to {POSITION_MAX}")
        place = 0 if position is None else place_of(position)
        for part in await names_of(self._connection, name):
            try:
                async for message in self._browse(part, place, count, selector):
                    yield message
                    count -= 1
            except Rejected as refusal:
                if refusal.code != "unknown-destination" or part == name:
                    raise

    async def _browse(self, name: str, place: int, count: int, selector: str) -> AsyncIterator[BrowsedMessage]:
        first: Page | None = None
        while count > 0 and (first is None or place < first.end):
            ends = [] if first is None else first.ends
            page = await self.page(name, place=place, count=min(count, PAGE_COUNT), selector=selector, ends=ends)
            first = first or page
            for message in page.messages:
                yield message
            count -= len(page.messages)
            if page.next <= place and not page.is_last:
                raise RemoteProtocolError("bad-reply", f"browsing {name!r} does not get past place {place}")
            place = page.next

    async def _of_all(self, command: str, name: str, model: type[Model], **arguments: Any) -> list[Model]:
        """The answers of all that are meant by the name, at least one."""
        found: list[Model] = []
        refused: Rejected | None = None
        for part in await names_of(self._connection, name):
            try:
                found.append(await self._ask(command, {"name": part, **arguments}, model))
            except Rejected as refusal:
                if refusal.code != "unknown-destination":
                    raise
                refused = refusal  # nothing has died there yet
        if refused is not None and not found:
            raise Rejected(refused.code, f"there is no destination {name!r}")
        return found

    async def _ask(self, command: str, arguments: dict[str, Any], model: type[Model]) -> Model:
        return convert(command, (await self._connection.request(command, arguments)).result, model)


async def read_page(connection: Requests, command: str, arguments: dict[str, Any], *, count: int) -> Page:
    """The answer to a request for messages, of which there may be `count`."""
    answer = await connection.request(command, arguments)
    described = convert(command, answer.result, BrowseAnswer)
    messages = _messages(described.parts, answer.payload)
    # A page that is full ends in the middle of what was read: go on after its last message.
    full = len(messages) >= count
    following = place_of(messages[-1].position) + 1 if full and messages else described.next
    return Page(messages=messages, next=following, end=described.end, ends=described.ends)


def _messages(parts: list[Part], payload: bytes) -> list[BrowsedMessage]:
    messages: list[BrowsedMessage] = []
    at = 0
    for part in parts:
        batch = Batch.parse(payload[at : at + part.bytes])
        at += part.bytes
        if batch.count != part.count:
            raise RemoteProtocolError("bad-reply", f"a part of {part.count} messages holds a batch of {batch.count}")
        messages.extend(_open(batch, part.position))
    if at != len(payload):
        raise RemoteProtocolError("bad-reply", f"{len(payload) - at} bytes follow the last part")
    return messages


def _open(batch: Batch, position: int) -> list[BrowsedMessage]:
    none = [b""] * batch.count
    priorities = batch.priorities() or bytes([PRIORITY_DEFAULT]) * batch.count
    expiries = batch.expiries_ms()
    expiries_ms = expiries.tolist() if expiries is not None else [0] * batch.count
    dues = batch.dues_ms()
    dues_ms = dues.tolist() if dues is not None else [0] * batch.count
    columns = zip(
        batch.bodies(), priorities, expiries_ms, dues_ms, batch.headers() or none, batch.properties() or none,
        strict=True,
    )  # fmt: skip
    return [
        BrowsedMessage(
            position=position + index,
            id=format_id(message_id(batch.producer, batch.sequence(index))),
            timestamp_ms=batch.timestamp_ms,
            priority=priority,
            expires_ms=expires_ms,
            due_ms=due_ms or batch.timestamp_ms,
            headers=_map(headers),
            properties=_map(properties),
            body=body,
        )
        for index, (body, priority, expires_ms, due_ms, headers, properties) in enumerate(columns)
    ]


def _map(packed: bytes) -> dict[str, Any]:
    if not packed:
        return {}
    try:
        return msgspec.msgpack.decode(packed, type=dict[str, Any])
    except MALFORMED as error:
        raise RemoteProtocolError("bad-reply", f"a message's headers or properties are not a map: {error}") from None
