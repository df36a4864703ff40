"""What administration commands answer, as types.

A broker may be newer or older than we are: fields that it adds are ignored, fields that it lacks have a default.
A field of the wrong type is the broker's mistake and named in the error.
"""
from typing import Any, TypeVar

import msgspec

from angarium.core.errors import RemoteProtocolError


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # empty: the one subscription of a queue
    durable: bool = False
    messages: int = 0  # waiting
    in_flight: int = 0  # delivered and not settled
    consumers: int = 0
    redelivered: int = 0


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # "queue" or "topic"
    confirm: str = "disk"  # or "memory"
    temporary: bool = False  # it goes with the connection that made it
    messages: int = 0  # waiting; on a topic, for the subscription that is furthest behind
    bytes_mean: int = 0  # of a message's body
    first_position: int = 0
    next_position: int = 0
    producers: int = 0
    consumers: int = 0
    in_flight: int = 0
    messages_in: int = 0  # this and the following: since the node started
    messages_out: int = 0
    settled: int = 0
    rejected: int = 0
    expired: int = 0
    damaged: int = 0  # messages set aside because their stored bytes failed the checksum
    blocked: str = ""  # why producers have to wait; empty: they do not
    subscriptions: list[Subscription] = []  # the first thousand
    subscription_count: int = 0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str = ""
    incarnation: str = ""
    uptime_s: float = 0.0
    pid: int = 0
    connections: int = 0
    sessions: int = 0
    destinations: int = 0
    messages_in: int = 0
    messages_out: int = 0
    blocked: str = ""
    rss_bytes: int = 0
    listen: str = ""  # where clients connect, as configured
    data: str = ""  # directory of the store
    damaged: int = 0
    unwritten_bytes: int = 0
    limits: dict[str, int] = {}  # as they hold in this node: lower than configured where the system bears no more
    store: dict[str, Any] = {}


class BrowsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    id: str
    timestamp_ms: int
    priority: int
    expires_ms: int  # 0: never
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: bytes


class Page(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[BrowsedMessage]
    next_position: int  # where the next page starts
    end_position: int  # one past the last message when the page was read

    @property
    def is_last(self) -> bool:
        return self.next_position >= self.end_position


class Part(msgspec.Struct, frozen=True):
    """One batch in the payload of a browse answer."""

    position: int
    count: int
    bytes: int


class BrowseAnswer(msgspec.Struct, frozen=True):
    parts: list[Part]
    next: int
    end: int


class Purged(msgspec.Struct, frozen=True):
    purged: int


Model = TypeVar("Model")


def convert(command: str, result: object, model: type[Model]) -> Model:
    """The broker's answer to `command` as a `model`, or RemoteProtocolError `bad-reply` that names the field."""
    try:
        return msgspec.convert(result, model)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("bad-reply", f"the broker's answer to {command} is not understood: {error}") from None
