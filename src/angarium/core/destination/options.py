"""What an administrator may choose for a destination, checked: by name, for `destination.create` and `.alter`."""
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from angarium.core.destination.records import DestinationRecord
from angarium.core.errors import Rejected
from angarium.core.names import DEAD_MESSAGE_QUEUE, EVENT_LOG

_CHOICES = {
    "confirm": ("disk", "memory"),
    "over_limit": ("block", "refuse", "oldest"),
    "slow_subscriber": ("wait", "drop"),
}
_FLAGS = ("buries", "last_value", "traced")
_RETENTION = ("retain_s", "retain_bytes", "retain_messages")
_NUMBERS = ("redeliveries_max", "redelivery_delay_ms", "messages_max", "bytes_max", *_RETENTION)
_NUMBER_MAX = 1 << 62
NAMES = (*_CHOICES, *_FLAGS, *_NUMBERS)


def with_options(record: DestinationRecord, given: Mapping[str, Any]) -> DestinationRecord:
    """The record with the options among `given`; other keys are somebody else's. Raises Rejected."""
    chosen = {name: given[name] for name in NAMES if name in given}
    for name, value in chosen.items():
        if name in _CHOICES:
            valid, wanted = value in _CHOICES[name], " or ".join(map(repr, _CHOICES[name]))
        elif name in _FLAGS:
            valid, wanted = isinstance(value, bool), "true or false"
        else:
            valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX
            wanted = f"a whole number up to {_NUMBER_MAX:,}, 0 for no limit"
        if not valid:
            raise Rejected("bad-argument", f"{name} = {value!r}: it is {wanted}")
    if record.owner or record.name in (DEAD_MESSAGE_QUEUE, EVENT_LOG):
        # Nothing of these is buried: temporary messages concern nobody else, dead ones are buried already, and events
        # are not worth it.
        chosen["buries"] = False
    if record.owner or record.name.startswith("_"):
        chosen["traced"] = False
    return replace(record, **chosen)


def options_of(record: DestinationRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in NAMES}
