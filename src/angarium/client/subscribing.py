"""What a consumer asks for beside its destination, checked, and the request that it becomes."""
from typing import NamedTuple

from angarium.client.destination import Destination, Topic, check_text, resolve
from angarium.core.client import events
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.names import check_name
from angarium.core.wire.frames import Start

PREFETCH_DEFAULT = 1_000
_STARTS = {"next": Start.NEXT, "oldest": Start.OLDEST}


class SubscriptionOptions(NamedTuple):
    """From the third on as `events.OpenConsumer` has it."""

    name: str = ""
    start: str = "next"
    selector: str = ""
    shared: bool = False
    durable: bool = True
    no_local: bool = False
    exclusive: bool = False
    existing: bool = False


QUEUE_ITSELF = SubscriptionOptions()


def check_prefetch(prefetch: int) -> None:
    if prefetch < 1:
        raise LocalProtocolError(f"prefetch {prefetch}: at least 1, else nothing ever arrives")


def subscription_name(durable: str | None, shared: bool | str) -> tuple[str, bool]:
    """The name, and whether it is one that outlives its consumers."""
    if isinstance(shared, str) and durable is not None:
        raise LocalProtocolError(f"subscription {durable!r} has a name: say shared=True, not shared={shared!r}")
    return (shared if isinstance(shared, str) else durable) or "", not isinstance(shared, str)


def opening(
    session: int, number: int, destination: Destination, prefetch: int, options: SubscriptionOptions
) -> events.OpenConsumer:
    if options.name:
        check_name(options.name, what="subscription")
        if isinstance(destination, str):  # only topics have subscriptions
            destination = Topic(destination)
    if options.start not in _STARTS:
        raise Rejected("bad-start", f"start {options.start!r}: use 'next' or 'oldest'")
    check_text(options.selector, "bad-selector", "selector")
    name, kind = resolve(destination, reading=True)
    start = _STARTS[options.start]
    return events.OpenConsumer(session, number, name, kind, prefetch, options.name, start, *options[2:])
