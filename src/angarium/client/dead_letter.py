"""Why a message is in the dead message queue, as the broker noted it when it put it there."""
from typing import Any

import msgspec

from angarium.core.malformed import MALFORMED


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    destination: str  # where it died
    reason: str  # expired, rejected, redelivery-limit, limit-exceeded, node-limit, damaged, bad-row
    died_ms: int  # milliseconds since 1970, as expiry_ms is
    subscription: str = ""  # of a topic: whose message it was
    position: int = 0
    deliveries: int = 0  # how often it had been delivered
    expiry_ms: int = 0  # when it would have expired, or has; 0 is never
    detail: str = ""  # what more is known


def dead_letter_of(header: Any) -> DeadLetter | None:
    """None for a message that lives, and for a header that no broker has written."""
    if header is None:
        return None
    try:
        return msgspec.convert(header, DeadLetter)
    except MALFORMED:
        return None
