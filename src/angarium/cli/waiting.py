"""Waiting for a broker that may not answer: for so long and no longer, and not in silence."""
import asyncio
import time
from collections.abc import Awaitable
from typing import NamedTuple

import angarium
from angarium.admin.administration import Administration
from angarium.admin.timed import TROUBLE_S_MAX, TimedRequests, hindrance_of, trouble_of, whereabouts
from angarium.cli import failure, options

TOLD_AFTER_S = 3.0  # somebody who waits without an end wants to know what for
OPENED_S_MIN = 3.0  # also for who wants only what is there: being let in takes a moment

LOOK_S = 0.25
_UNREMARKABLE = ("nothing-waiting", "delivering")  # codes of `explain`: nothing is in the way


async def until_served(connection: options.Connection, name: str, timeout_s: float | None) -> None:
    """Until the replica group that has the destination has a primary: what is asked of it before would hang."""
    limit_s = TOLD_AFTER_S if timeout_s is None else max(timeout_s, OPENED_S_MIN)
    deadline, is_told = time.monotonic() + limit_s, False
    while (found := await whereabouts(connection, name)) is not None and not found.is_served:
        if time.monotonic() >= deadline and not is_told:
            if timeout_s is not None:
                raise failure.Failure(f"{name!r}: {found.trouble}")
            failure.say(f"waiting for {name!r}: {found.trouble}")
            is_told = True
        await asyncio.sleep(LOOK_S)


async def until_opened(
    connection: options.Connection, opened: Awaitable[None], name: str, timeout_s: float | None
) -> None:
    """`opened` comes true when the broker has let us in. None waits for ever, and says so once."""
    waiting = asyncio.ensure_future(opened)
    limit_s = TOLD_AFTER_S if timeout_s is None else max(timeout_s, OPENED_S_MIN)
    try:
        done, _ = await asyncio.wait([waiting], timeout=limit_s)
        if not done:
            why = await why_silent(connection, name)
            if timeout_s is not None:
                raise failure.Failure(f"{name!r} could not be opened within {limit_s:g} s: {why}")
            failure.say(f"waiting for {name!r}: {why}")
        await waiting
    finally:
        waiting.cancel()


class Why(NamedTuple):
    """As `explain` says it."""

    code: str = ""
    sentence: str = ""


async def why_nothing_comes(connection: angarium.Connection, name: str, subscription: str | None) -> Why:
    """Empty if nothing is there, or who could say why does not answer.

    `subscription`: of a topic, the durable one; None: ours is the one without a name, if there are no others such."""
    if not connection.is_connected:
        return Why()
    try:
        found = await Administration(TimedRequests(connection, TROUBLE_S_MAX)).explain(name)
    except angarium.AngariumError:
        return Why()
    ours = [Why(each.code, each.sentence) for each in found.subscriptions if each.name == (subscription or "")]
    if found.kind == "queue":
        ours = [Why(found.code, found.sentence)]
    return ours[0] if len(ours) == 1 and ours[0].code not in _UNREMARKABLE else Why()


async def why_silent(connection: angarium.Connection, name: str) -> str:
    if not connection.is_connected:
        return f"the connection is lost: {connection.loss}"
    known = await trouble_of(connection, name) or await hindrance_of(connection, name)
    return known or "the broker does not answer"
