"""Producers."""
from dataclasses import dataclass

import msgspec

from angarium.core.client.gathered import Gathered
from angarium.core.wire.frames import DestinationKind


@dataclass(frozen=True, slots=True)
class OpenProducer:
    session: int
    producer: int
    destination: str
    destination_kind: DestinationKind
    query: str = ""  # what it publishes is staged, for this query to commit; empty: it is not
    batch: int = 0  # ... with its batch of this number


class Publish(msgspec.Struct, frozen=True):
    """At most one batch of messages. Their sequences follow those of the Publish before, the first is 1."""

    session: int
    producer: int
    messages: Gathered


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """For a producer with nothing unconfirmed."""

    session: int
    producer: int


@dataclass(frozen=True, slots=True)
class ProducerReady:
    session: int
    producer: int
    identity: bytes


class Confirmed(msgspec.Struct, frozen=True):
    """All up to `sequence` are confirmed but those reported by `Refused`."""

    session: int
    producer: int
    sequence: int
    cost: int  # of the batches that this finished
    count: int  # messages in those


@dataclass(frozen=True, slots=True)
class Refused:
    """The messages `first` to `last` will never be stored."""

    session: int
    producer: int
    first: int
    last: int
    code: str
    reason: str
    cost: int
    count: int


@dataclass(frozen=True, slots=True)
class ProducerEnded:
    """What is unconfirmed has failed."""

    session: int
    producer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    session: int
    producer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    session: int
    producer: int
