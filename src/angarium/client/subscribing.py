"""What a consumer asks for beside its destination, checked, and the request that it becomes."""
import operator
from typing import NamedTuple

from angarium.client.destination import Destination, Topic, checked_text, plain_text, resolve
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


def whole_prefetch(prefetch: int) -> int:
    """As an `int` and nothing more: the broker ends a connection that asks for half a message."""
    try:
        return int(operator.index(prefetch))
    except TypeError:
        raise TypeError(f"prefetch is a whole number, not {prefetch!r}") from None


def first_prefetch(prefetch: int) -> int:
    found = whole_prefetch(prefetch)
    if found < 1:
        raise LocalProtocolError(f"prefetch {found}: at least 1, else nothing ever arrives")
    return found


def checked(options: SubscriptionOptions) -> SubscriptionOptions:
    """Of the types that frames have: the broker ends a connection that says anything else."""
    for what, value in (("no_local", options.no_local), ("exclusive", options.exclusive)):
        if value.__class__ is not bool:
            raise TypeError(f"{what} is True or False, not {value!r}")
    return options._replace(selector=checked_text(options.selector, "bad-selector", "selector"))


def subscription_name(durable: str | None, shared: bool | str) -> tuple[str, bool]:
    """The name, empty if there is none, and whether it is one that outlives its consumers."""
    if isinstance(shared, str) and durable is not None:
        raise LocalProtocolError(f"subscription {durable!r} has a name: say shared=True, not shared={shared!r}")
    name = shared if isinstance(shared, str) else durable
    if name is not None:  # also an empty one, which is a variable that was never set: nothing durable would come of it
        name = plain_text(name, "a subscription's name")
        check_name(name, what="subscription")
    return name or "", not isinstance(shared, str)


def opening(
    session: int, number: int, destination: Destination, prefetch: int, options: SubscriptionOptions
) -> events.OpenConsumer:
    if options.name and isinstance(destination, str):  # only topics have subscriptions
        destination = Topic(destination)
    if options.start not in _STARTS:
        raise Rejected("bad-start", f"start {options.start!r}: use 'next' or 'oldest'")
    name, kind = resolve(destination, reading=True)
    start = _STARTS[options.start]
    return events.OpenConsumer(session, number, name, kind, prefetch, options.name, start, *options[2:])
