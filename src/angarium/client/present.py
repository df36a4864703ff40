"""Receiving what is there now, without waiting for what is yet to come.

A consumer knows only what has arrived. Whether more lies ready, only the broker knows. It is asked after the consumer
has been opened there, with its credit: what it can give at once is on its way before its answer.
"""
import asyncio
from typing import TYPE_CHECKING

from angarium.client.consumer import Consumer
from angarium.client.message import Message

if TYPE_CHECKING:
    from angarium.client.connection import Connection

PRESENT_S_MAX = 1.0  # for the answer, and for what has to be read from disk first


async def receive_present(connection: "Connection", consumer: Consumer, max: int) -> list[Message]:
    """Up to `max` messages that are there; none if nothing is, or the broker does not answer in time."""
    messages = await consumer.receive_batch(max, 0)
    return messages or await consumer.receive_batch(max, await time_for_present_s(connection, consumer))


async def time_for_present_s(connection: "Connection", consumer: Consumer) -> float:
    """How long to wait for what is there and has not arrived; 0: it has, or nothing is there."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PRESENT_S_MAX
    try:
        async with asyncio.timeout_at(deadline):
            await consumer.opened()
            answer = await connection.request("destination.describe", {"name": consumer.destination})
    except TimeoutError:
        return 0.0
    is_waiting = isinstance(answer.result, dict) and bool(answer.result.get("messages"))
    return max(0.0, deadline - loop.time()) if is_waiting else 0.0
