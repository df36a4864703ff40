"""Emptying a queue or a subscription, with every message checked on the way."""
import angarium
from tests.process.process_broker import WAIT_S
from tests.process.process_ledger import Inbox
from tests.process.process_traffic import EAGER


async def drain(
    address: str | list[str],
    destination: angarium.Destination,
    *,
    durable: str | None = None,
    at_least: int = 0,
    quiet_s: float = 0.5,
) -> Inbox:
    """At least so many messages, and then whatever comes until it is quiet; all settled, and durably so."""
    inbox = Inbox("drain")
    async with angarium.connect(address, reconnect=EAGER) as connection, connection.session() as session:
        consumer = session.consume(destination, durable=durable)
        await consumer.opened()
        while True:
            is_enough = len(inbox.bodies) >= at_least
            messages = await consumer.receive_batch(1_000, timeout_s=quiet_s if is_enough else WAIT_S)
            if not messages:
                assert is_enough, f"nothing came for {WAIT_S:g} s after {len(inbox.bodies)} of {at_least}"
                break
            for message in messages:
                inbox.take(message)
                message.settle()
        await session.sync()
    return inbox
