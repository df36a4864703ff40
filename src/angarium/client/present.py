"""Receiving what is there now, without waiting for what is yet to come.

A consumer knows only what has arrived. Whether more is on its way, only the broker knows. It is asked after the
consumer has been opened there, with its credit, unless that is used up: what it can give at once is sent before its
answer, and what it has to read from disk first it calls `delivering`. What others hold, or no consumer selects, is not
waited for.

A broker that is slow, or is being replaced, is waited for: only its answer says that nothing is there. If there is none
in ANSWER_S_MAX, `Unavailable` says so.
"""
import asyncio
from typing import TYPE_CHECKING, Any

from angarium.client.log import asked
from angarium.core.errors import AngariumError, Unavailable

if TYPE_CHECKING:
    from angarium.client.connection import Connection
    from angarium.client.consumer import Consumer

ANSWER_S_MAX = 30.0  # for the broker's answers; long enough for a connection that is lost to come back
PRESENT_S_MAX = 1.0  # after the first answer: for credit to get there, and for what has to be read from disk
ASK_AGAIN_S = 0.002


async def time_for_present_s(connection: "Connection", consumer: "Consumer") -> float:
    """How long to wait for what is there and has not arrived; 0: it has, or nothing is there. Raises `Unavailable` if
    the broker does not say."""
    consumer.flush_now()  # what is settled makes room
    if consumer.is_full:
        return 0.0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await consumer.opened()
            codes = await _codes(connection, consumer)
            deadline = loop.time() + PRESENT_S_MAX
            # The consumer has granted some, and it is on its way; or all that it may hold is held.
            while "no-credit" in codes and consumer.is_empty and loop.time() < deadline:
                await asyncio.sleep(ASK_AGAIN_S)
                codes = await _codes(connection, consumer)
    except TimeoutError:
        reason = f"{consumer.destination!r}: the broker has not said in {ANSWER_S_MAX:g} s whether it has messages"
        raise Unavailable(f"{reason}; try again, or wait for some") from None
    except Unavailable:
        raise
    except AngariumError:  # what the consumer was refused with, it says itself
        return 0.0
    return max(0.0, deadline - loop.time()) if "delivering" in codes else 0.0


async def _codes(connection: "Connection", consumer: "Consumer") -> set[str]:
    """Why the queue has not given more, or a topic's subscriptions: one of them is ours."""
    answer = await asked(connection.request, "destination.explain", {"name": consumer.destination})
    told: Any = answer.result
    if told["kind"] == "queue":
        return {told["code"]}
    return {each["code"] for each in told["subscriptions"]} - {"no-credit"}  # of others
