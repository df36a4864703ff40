"""Emptying a queue or a subscription, with every message checked on the way."""
import time

import angarium
from angarium.client.destination import name_of
from tests.process.process_broker import WAIT_S
from tests.process.process_ledger import Inbox
from tests.process.process_traffic import EAGER

_LOOK_S = 0.1  # nothing came for so long: is there anything left?


async def drain(
    address: str | list[str], destination: angarium.Destination | str, *, durable: str | None = None, at_least: int = 0
) -> Inbox:  # fmt: skip
    """At least so many messages, and then whatever comes until there is none left; all settled, and durably so."""
    inbox = Inbox("drain")
    async with angarium.connect(address, reconnect=EAGER) as connection, connection.session() as session:
        consumer = session.consume(destination, durable=durable)
        await consumer.opened()
        deadline = time.monotonic() + WAIT_S
        while True:
            messages = await consumer.receive_batch(1_000, timeout_s=_LOOK_S)
            for message in messages:
                inbox.take(message)
                message.settle()
            if messages:
                deadline = time.monotonic() + WAIT_S
            elif len(inbox.bodies) >= at_least and await is_empty(connection, session, name_of(destination), durable):
                return inbox
            assert time.monotonic() < deadline, f"nothing came for {WAIT_S:g} s after {len(inbox.bodies)} of {at_least}"


async def left(connection: angarium.Connection, name: str) -> list[angarium.Message]:
    """All that is still there, taken."""
    found: list[angarium.Message] = []
    deadline = time.monotonic() + WAIT_S
    async with connection.session() as session, session.consume(name) as consumer:
        await consumer.opened()
        while not await is_empty(connection, session, name):
            assert time.monotonic() < deadline, f"{name}: something is left that does not come after {len(found)}"
            while (message := await consumer.receive(timeout_s=_LOOK_S)) is not None:
                found.append(message)
                message.settle()
    return found


async def is_empty(
    connection: angarium.Connection, session: angarium.Session, name: str, durable: str | None = None
) -> bool:
    """Nothing waits and nothing is held, once what was settled counts: silence alone may be a busy machine."""
    await session.sync()
    described = (await connection.request("destination.describe", {"name": name})).result
    if durable is not None:
        (described,) = [each for each in described["subscriptions"] if each["name"] == durable]
    return bool(described["messages"] == described["in_flight"] == 0)
