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
    selector: str = ""
    shared: bool = False
    dropped: int = 0  # messages that it lost because it was too far behind


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who reads the log, as far as he has told."""

    name: str
    lag: int = 0  # messages that he has not read yet
    noted_ms: int = 0  # when he told


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # "queue" or "topic"
    group: int = 0  # number of the replica group that has it; 0: of a broker that is alone
    confirm: str = "disk"  # or "memory"; this and the following are what `create` and `alter` take
    redeliveries_max: int = 0  # past it to the dead message queue; 0: never
    redelivery_delay_ms: int = 0
    buries: bool = True  # what cannot be delivered goes to the dead message queue; else it is gone
    messages_max: int = 0  # 0: no limit
    bytes_max: int = 0
    over_limit: str = "block"  # or "refuse", or "oldest"
    slow_subscriber: str = "wait"  # or "drop"
    last_value: bool = False
    retain_s: int = 0  # how long what is settled stays for readers of the log; the first limit that is reached counts
    retain_bytes: int = 0
    retain_messages: int = 0
    traced: bool = False  # what becomes of its messages is noted, for an audit
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
    dead: int = 0  # moved to the dead message queue
    delayed: int = 0  # not yet due
    staged: int = 0  # not yet committed, or not yet moved into the log
    staged_dropped: int = 0  # staged, and not committed in time
    bytes: int = 0  # stored in the log
    bytes_held: int = 0  # what counts against its limit: streams and what is not yet due included
    retained: int = 0  # messages that are settled, and stored for readers of the log
    damaged: int = 0  # messages set aside because their stored bytes failed the checksum
    blocked: str = ""  # why producers have to wait; empty: they do not
    subscriptions: list[Subscription] = []  # the first thousand
    subscription_count: int = 0
    readers: list[Reader] = []  # of the log


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
    listen: str = ""  # where clients connect: angarium://HOST:PORT
    data: str = ""  # directory of the store
    damaged: int = 0
    unwritten_bytes: int = 0
    limits: dict[str, int] = {}  # as they hold in this node: lower than configured where the system bears no more
    store: dict[str, Any] = {}
    cluster: str = ""  # that it is a node of; empty: it is alone
    leader: str = ""  # of the cluster's group services, as far as it knows


class BrowsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    id: str
    timestamp_ms: int
    priority: int
    expires_ms: int  # 0: never
    due_ms: int = 0  # not to be delivered before; without a delay, when it was sent
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: bytes


class Page(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[BrowsedMessage]
    next: int  # place where the next page starts
    end: int  # place after the last message when the page was read
    ends: list[int] = []  # the same of each priority: whoever names them is shown no more than that

    @property
    def is_last(self) -> bool:
        return self.next >= self.end


class Part(msgspec.Struct, frozen=True):
    """One batch in the payload of a browse answer."""

    position: int
    count: int
    bytes: int


class BrowseAnswer(msgspec.Struct, frozen=True):
    parts: list[Part]
    next: int
    end: int
    ends: list[int] = []


class Purged(msgspec.Struct, frozen=True):
    purged: int


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why messages of one subscription are not being delivered."""

    name: str = ""
    code: str
    sentence: str
    figures: dict[str, int] = {}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    code: str  # of a topic: of the subscription that is furthest behind
    sentence: str
    figures: dict[str, int] = {}
    blocked: dict[str, str] | None = None  # code and reason, if producers have to wait
    subscriptions: list[Reason] = []  # of a topic, the first thousand
    subscription_count: int = 0


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead messages that died in the same place of the same reason."""

    destination: str
    subscription: str = ""
    reason: str = ""
    count: int = 0
    bytes: int = 0  # of their bodies
    first_ms: int = 0  # when the first and the last of them died
    last_ms: int = 0

    def __add__(self, other: "DeadGroup") -> "DeadGroup":
        return msgspec.structs.replace(
            self,
            count=self.count + other.count,
            bytes=self.bytes + other.bytes,
            first_ms=min(self.first_ms, other.first_ms),
            last_ms=max(self.last_ms, other.last_ms),
        )


class Staying(msgspec.Struct, frozen=True, kw_only=True):
    """Dead messages that cannot be redriven now."""

    destination: str
    code: str
    reason: str = ""
    count: int = 0

    def __add__(self, other: "Staying") -> "Staying":
        return msgspec.structs.replace(self, count=self.count + other.count)


class DeadPage(msgspec.Struct, frozen=True, kw_only=True):
    """What one request did."""

    next: int
    end: int
    groups: list[DeadGroup] = []
    moved: int = 0
    discarded: int = 0
    held: int = 0
    staying: list[Staying] = []


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    moved: int
    held: int  # by consumers of the dead message queue
    staying: list[Staying]


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    discarded: int
    held: int


Model = TypeVar("Model")


def convert(command: str, result: object, model: type[Model]) -> Model:
    """The broker's answer to `command` as a `model`, or RemoteProtocolError `bad-reply` that names the field."""
    try:
        return msgspec.convert(result, model)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("bad-reply", f"the broker's answer to {command} is not understood: {error}") from None
