"""Requests that end: whoever is not answered in time is told so, and does not wait for ever."""
import asyncio
from typing import Any

import msgspec

from angarium.admin.model import Explanation, convert
from angarium.admin.requests import Answer, Requests
from angarium.core.errors import AngariumError, Unavailable

REQUEST_S_MAX = 30.0  # a group without a primary is told sooner, by the node that was asked
TROUBLE_S_MAX = 2.0


class TimedRequests:
    def __init__(self, connection: Requests, timeout_s: float = REQUEST_S_MAX) -> None:
        self._connection = connection
        self.timeout_s = timeout_s

    async def request(self, command: str, arguments: dict[str, Any] | None = None) -> Answer:
        try:
            return await asyncio.wait_for(self._connection.request(command, arguments or {}), self.timeout_s)
        except TimeoutError:
            silence = f"{command}: no answer within {self.timeout_s:g} s; it may have been done or not"
        name = (arguments or {}).get("name")
        if isinstance(name, str) and self.timeout_s > TROUBLE_S_MAX:  # not itself a question for the reason
            why = await hindrance_of(self._connection, name)
            silence += f": {why}" if why else ""
        raise Unavailable(silence)


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """The replica group of a cluster that has a destination, or would have it."""

    name: str
    group: str = ""
    number: int = 0
    primary: str = ""
    in_sync: list[str] = []
    is_served: bool = False  # its message manager runs
    trouble: str = ""


async def whereabouts(connection: Requests, name: str) -> Whereabouts | None:
    """None of a broker that is alone, or does not answer."""
    try:
        answer = await TimedRequests(connection, TROUBLE_S_MAX).request("cluster.where", {"name": name})
        return convert("cluster.where", answer.result, Whereabouts)
    except AngariumError:
        return None


async def trouble_of(connection: Requests, name: str) -> str:
    """Why nothing of that destination comes, as its cluster knows; empty if it knows nothing, or is none."""
    found = await whereabouts(connection, name)
    return "" if found is None else found.trouble


async def hindrance_of(connection: Requests, name: str) -> str:
    """Why nothing new can be written there for now, code and reason; empty if it can, or if nobody says."""
    try:
        answer = await TimedRequests(connection, TROUBLE_S_MAX).request("destination.explain", {"name": name})
        blocked = convert("destination.explain", answer.result, Explanation).blocked
    except AngariumError:
        return ""
    return ": ".join((blocked["code"], blocked["reason"])) if blocked else ""
