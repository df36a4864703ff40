"""What the store keeps of a destination, and what is counted while it runs."""
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from angarium.core.destination.subscription import ConsumerKey
from angarium.core.storage import Put, Table, key_of
from angarium.core.wire.frames import DestinationKind

_SESSION_BYTES = 16


class DestinationRecord(msgspec.Struct, array_like=True, frozen=True):
    name: str
    kind: DestinationKind
    confirm: str = "disk"  # or "memory": confirmed when ordered, written a little later


class LogField(IntEnum):
    """Figures of a log, each a record of its own: a settlement may be written ahead of a publish."""

    FIRST = 1  # positions below are gone
    NEXT = 2  # the position that the next message gets
    DAMAGED = 3  # positions set aside


def log_put(destination: int, field: LogField, value: int) -> Put:
    return Put(Table.LOG, key_of(destination, bytes((field,))), value.to_bytes(8, "big"))


@dataclass(slots=True)
class Counters:
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    settled: int = 0
    rejected: int = 0
    expired: int = 0
    damaged: int = 0


def attached_key(destination: int, consumer: ConsumerKey, subscription: str) -> bytes:
    session, number = consumer
    return key_of(destination, session + number.to_bytes(4, "big") + subscription.encode())


def parse_attached_key(key: bytes) -> tuple[int, ConsumerKey, str]:
    session_end = 8 + _SESSION_BYTES
    number = int.from_bytes(key[session_end : session_end + 4], "big")
    return int.from_bytes(key[:8], "big"), (key[8:session_end], number), key[session_end + 4 :].decode()
