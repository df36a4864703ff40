"""What the store keeps of a destination, and what is counted while it runs."""
from dataclasses import dataclass

import msgspec

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.storage import key_of
from angarium.core.wire.frames import DestinationKind

_SESSION_BYTES = 16


class DestinationRecord(msgspec.Struct, array_like=True, frozen=True):
    name: str
    kind: DestinationKind
    confirm: str = "disk"  # or "memory": confirmed when ordered, written a little later
    redeliveries_max: int = 0  # past it a message goes to the dead message queue; 0: never
    redelivery_delay_ms: int = 0  # before a released message is delivered again
    buries: bool = True  # what cannot be delivered goes to the dead message queue; else it is gone
    messages_max: int = 0  # waiting, past which `over_limit` says what happens; 0: no limit
    bytes_max: int = 0  # stored; the same
    over_limit: str = "block"  # producers; or "refuse" what is new, or bury the "oldest"
    slow_subscriber: str = "wait"  # for it, as `over_limit` says; or "drop" its oldest messages, and tell it
    last_value: bool = False  # of messages with the same `last_value_key` only the last is kept
    owner: bytes = b""  # of a temporary one: the connection that alone may consume from it
    retain_s: int = 0  # this and the next two: what is settled stays in the log so long ...
    retain_bytes: int = 0  # ... or while no more than this is stored, of each priority ...
    retain_messages: int = 0  # ... the same; 0: no such limit. All 0: it goes at once
    traced: bool = False  # what becomes of its messages is noted in `_TRACE`
    first_identity: int = 0  # of one that was moved between replica groups: its id before; its log is read by it
    traced_from: int = 0  # of the same: messages of traces that tell of it here have this number, or a higher one
    trace_offset: int = 0  # of a log of traces: what is added to the place of a message, for its number

    @property
    def retains(self) -> bool:
        """What is settled is kept for those who read the log."""
        return bool(self.retain_s or self.retain_bytes or self.retain_messages)


@dataclass(slots=True)
class Counters:
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    settled: int = 0
    rejected: int = 0
    expired: int = 0
    dead: int = 0  # moved to the dead message queue
    damaged: int = 0


def attached_key(destination: int, consumer: ConsumerKey, subscription: str) -> bytes:
    session, number = consumer
    return key_of(destination, session + number.to_bytes(4, "big") + subscription.encode())


def parse_attached_key(key: bytes) -> tuple[int, ConsumerKey, str]:
    session_end = 8 + _SESSION_BYTES
    number = int.from_bytes(key[session_end : session_end + 4], "big")
    return int.from_bytes(key[:8], "big"), (key[8:session_end], number), key[session_end + 4 :].decode()
