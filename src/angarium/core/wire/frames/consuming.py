"""Frames of consumers: opening, credit, deliveries, settlements, recovery."""
from angarium.core.ranges import Range
from angarium.core.wire.frames.vocabulary import DestinationKind, Frame, Outcome, Ranges, Start


class ConsumerOpen(Frame, frozen=True):
    """Opens or, after a reconnection, takes up a consumer.

    A consumer that resumes sends the positions it still holds unsettled, then its unanswered settlements,
    and only then credit: so nothing is delivered to it before the broker knows what it has.
    """

    kind = 30
    consumer: int
    destination: str
    destination_kind: DestinationKind
    subscription: str = ""  # durable name on a topic; empty: the queue itself, or this consumer alone
    start: Start = Start.NEXT
    credit: int = 0  # see Credit
    resumed: bool = False
    held: Ranges = []
    next_position: int = -1  # of a resumed, not durable subscription: the first position not yet received
    attachment: bytes = b""  # on the bus: of the session to this connection; the answer repeats it
    selector: str = ""  # only messages that it is true of; empty: all
    shared: bool = False  # a subscription that several consumers divide among them
    durable: bool = True  # of a named subscription: it stays when nobody consumes from it
    no_local: bool = False  # nothing that the same connection has sent
    exclusive: bool = False  # one consumer at a time; the others wait
    client: bytes = b""  # on the bus: the identity of the connection
    existing: bool = False  # the destination is not created if it does not exist
    next_positions: list[int] = []  # as `next_position`, in the lanes beyond the first
    transacted: bool = False  # on the bus: its session settles by Commit only


class ConsumerOpened(Frame, frozen=True):
    kind = 31
    consumer: int
    lost: list[Range] = []  # held positions that are no longer this consumer's
    attachment: bytes = b""
    position: int = -1  # where a subscription that is not durable goes on: its client repeats it when it resumes
    positions: list[int] = []  # the same, in the lanes beyond the first


class Credit(Frame, frozen=True):
    """The consumer accepts `limit` messages in all, counted from its ConsumerOpen. It may be lowered."""

    kind = 32
    consumer: int
    limit: int


class Deliver(Frame, frozen=True):
    """Payload: one batch; its messages have the positions `position`, `position` + 1, ..., or those in `ranges`."""

    kind = 33
    consumer: int
    position: int
    redeliveries: list[int] = []  # how often each was delivered before; empty: never
    ranges: list[Range] = []  # positions of the messages in order, ascending, when they are not consecutive

    def positions(self, count: int) -> list[int]:
        """Of each of the `count` messages."""
        ranges = self.ranges or [(self.position, self.position + count)]
        return [position for low, high in ranges for position in range(low, high)]


class Settle(Frame, frozen=True):
    kind = 34
    consumer: int
    number: int  # 1, 2, 3, ... within the consumer
    outcome: Outcome
    ranges: Ranges
    credit: int = -1  # as Credit, or -1: unchanged


class Settled(Frame, frozen=True):
    """Settlements up to `number` are durable."""

    kind = 35
    consumer: int
    number: int
    lost: list[Range] = []  # positions that were not this consumer's to settle


class ConsumerClose(Frame, frozen=True):
    """Unsettled messages go back. Answered by ConsumerClosed with an empty code, after earlier settlements."""

    kind = 36
    consumer: int
    unsubscribe: bool = False  # also end the durable subscription
    # Of what goes back, what the application has seen: the rest counts as never delivered. None: all of it counts.
    seen: Ranges | None = None


class ConsumerClosed(Frame, frozen=True):
    """The consumer has ended: asked for (code empty), refused, or by the broker."""

    kind = 37
    consumer: int
    code: str = ""
    reason: str = ""


class Recover(Frame, frozen=True):
    """Everything that the consumer holds goes back, what is in `seen` with a higher redelivery count."""

    kind = 38
    consumer: int
    number: int  # 1, 2, 3, ... within the consumer
    seen: Ranges


class Recovered(Frame, frozen=True):
    """What was delivered before this is void; it comes again after it."""

    kind = 39
    consumer: int
    number: int


class Dropped(Frame, frozen=True):
    """The subscription was too far behind: so many of its oldest messages are gone."""

    kind = 42
    consumer: int
    count: int
