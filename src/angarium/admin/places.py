"""Where in a cluster something is: replica groups, and the dead message queue that each of them has of its own."""
from collections.abc import Sequence
from typing import Any

from angarium.admin.model import Destination, convert
from angarium.admin.requests import Requests
from angarium.core.errors import Rejected
from angarium.core.names import DEAD_MESSAGE_QUEUE, dead_message_queue_of

_SUMMED = (
    "messages", "producers", "consumers", "in_flight", "messages_in", "messages_out", "settled", "rejected", "expired",
    "dead", "delayed", "bytes", "bytes_held", "retained", "damaged", "subscription_count",
)  # fmt: skip


async def replica_groups(connection: Requests) -> dict[str, int]:
    """Names and numbers of a cluster's replica groups; of a broker that is alone there are none."""
    try:
        answer = await connection.request("node.groups", {})
    except Rejected as refusal:
        if refusal.code == "unknown-command":
            return {}
        raise
    return convert("node.groups", answer.result, dict[str, int])


async def names_of(connection: Requests, name: str) -> list[str]:
    """The destinations that are meant: `_DMQ` is one in each replica group, any other name is one."""
    if name != DEAD_MESSAGE_QUEUE:
        return [name]
    groups = await replica_groups(connection)
    return [dead_message_queue_of(number) for number in sorted(groups.values())] if len(groups) > 1 else [name]


def combined(parts: Sequence[Destination]) -> Destination:
    """Destinations of one name, in several replica groups, as one: what is counted is summed."""
    first = parts[0]
    if len(parts) == 1:
        return first
    summed: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    stored = max(summed["messages"], 1)
    summed["bytes_mean"] = sum(part.bytes_mean * part.messages for part in parts) // stored
    summed["group"] = 0  # in several
    summed["blocked"] = next((part.blocked for part in parts if part.blocked), "")
    summed["subscriptions"] = [each for part in parts for each in part.subscriptions]
    summed["readers"] = [each for part in parts for each in part.readers]
    fields = {name: getattr(first, name) for name in Destination.__struct_fields__}
    return Destination(**(fields | summed))


def by_name(found: Sequence[Destination]) -> list[Destination]:
    parts: dict[str, list[Destination]] = {}
    for destination in found:
        parts.setdefault(destination.name, []).append(destination)
    return [combined(parts[name]) for name in sorted(parts)]
