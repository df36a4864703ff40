"""What clients see of a message manager: a producer, a consumer."""
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from angarium.core.ranges import Range
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Outcome, Start
from angarium.core.wire.packing import NO_COLUMNS, MessageColumns, pack

if TYPE_CHECKING:
    from tests.unit.core.core_manager import World


class Producer:
    """What a client knows of its producer."""

    def __init__(
        self,
        world: "World",
        destination: int,
        *,
        session: bytes | None = None,
        number: int = 1,
        identity: bytes | None = None,
        confirmed: int = 0,
        client: bytes = b"",
        stage: tuple[str, int] = ("", 0),
    ) -> None:
        self.world = world
        self.destination = destination
        self.session = session or world.session()
        self.number = number
        self.identity = identity or world._fresh_identity()
        self.sequence = confirmed  # the last one used
        self.stage = stage  # query and batch
        opening = frames.ProducerOpen(
            number, "x", DestinationKind.ANY, self.identity, confirmed, client=client, query=stage[0], batch=stage[1]
        )
        world.frame(self.session, destination, opening)

    @property
    def opened(self) -> frames.ProducerOpened:
        return self.world.last(self.session, frames.ProducerOpened)

    @property
    def confirmed(self) -> int:
        """The highest sequence that this producer was told is confirmed."""
        confirms = self.world.received(self.session, frames.Confirm)
        return max((c.sequence for c in confirms if c.producer == self.number), default=0)

    def publish(self, *bodies: bytes, columns: MessageColumns = NO_COLUMNS) -> None:
        first = self.sequence + 1
        self.sequence += len(bodies)
        self.send(first, *bodies, columns=columns)

    def send(self, first: int, *bodies: bytes, columns: MessageColumns = NO_COLUMNS) -> None:
        """One batch with the sequences from `first` on, whatever was sent before."""
        batch = pack(self.identity, first, self.world.wall_ms, bodies, columns)
        self.world.frame(self.session, self.destination, frames.Publish(self.number), batch)

    def resume(self, *, session: bytes | None = None, number: int | None = None, world: "World | None" = None) -> None:
        """Open again under the same identity, perhaps elsewhere."""
        self.world = world or self.world
        confirmed = self.confirmed if world is None else 0
        self.session = session or self.session
        self.number = self.number if number is None else number
        query, batch = self.stage
        opening = frames.ProducerOpen(
            self.number, "x", DestinationKind.ANY, self.identity, confirmed, query=query, batch=batch
        )
        self.world.frame(self.session, self.destination, opening)

    def close(self) -> None:
        self.world.frame(self.session, self.destination, frames.ProducerClose(self.number))


class Consumer:
    """What a client knows of its consumer."""

    def __init__(
        self,
        world: "World",
        destination: int,
        *,
        session: bytes | None = None,
        number: int = 1,
        credit: int = 1_000,
        subscription: str = "",
        start: Start = Start.NEXT,
        **more: Any,
    ) -> None:
        self.world = world
        self.destination = destination
        self.session = session or world.session()
        self.number = number
        self.subscription = subscription
        self._settlements = 0
        self._more = more  # fields of ConsumerOpen: selector, shared, durable, no_local, exclusive, client
        opening = frames.ConsumerOpen(number, "x", DestinationKind.ANY, subscription, start, credit, **more)
        world.frame(self.session, destination, opening)

    @property
    def is_open(self) -> bool:
        opened = [f for f in self.world.received(self.session, frames.ConsumerOpened) if f.consumer == self.number]
        return bool(opened) and not self.closed_codes

    @property
    def closed_codes(self) -> list[str]:
        closed = self.world.received(self.session, frames.ConsumerClosed)
        return [frame.code for frame in closed if frame.consumer == self.number]

    @property
    def deliveries(self) -> list[tuple[int, bytes, int]]:
        """Position, body and redelivery count of everything that arrived, in order."""
        arrived: list[tuple[int, bytes, int]] = []
        for frame, payload in self.world.sent.get(self.session, []):
            if isinstance(frame, frames.Deliver) and frame.consumer == self.number:
                batch = Batch.parse(payload)
                counts = frame.redeliveries or [0] * batch.count
                assert len(counts) == batch.count
                arrived += zip(frame.positions(batch.count), batch.bodies(), counts, strict=True)
        return arrived

    @property
    def positions(self) -> list[int]:
        return [position for position, _, _ in self.deliveries]

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.deliveries]

    @property
    def settled(self) -> list[frames.Settled]:
        answers = self.world.received(self.session, frames.Settled)
        return [frame for frame in answers if frame.consumer == self.number]

    def credit(self, limit: int) -> None:
        self.world.frame(self.session, self.destination, frames.Credit(self.number, limit))

    def settle(self, *ranges: Range, outcome: Outcome = Outcome.SETTLE, credit: int = -1) -> None:
        self._settlements += 1
        settle = frames.Settle(self.number, self._settlements, outcome, list(ranges), credit)
        self.world.frame(self.session, self.destination, settle)

    def release(self, *ranges: Range) -> None:
        self.settle(*ranges, outcome=Outcome.RELEASE)

    def reject(self, *ranges: Range) -> None:
        self.settle(*ranges, outcome=Outcome.REJECT)

    def resume(
        self,
        held: list[Range],
        *,
        credit: int | None = 1_000,
        next_position: int = -1,
        next_positions: Sequence[int] = (),
        world: "World | None" = None,
    ) -> None:
        """Open again after a cut, with claims; then grant credit unless it is None."""
        self.world = world or self.world
        opening = frames.ConsumerOpen(
            self.number, "x", DestinationKind.ANY, self.subscription, Start.NEXT, 0, True, held, next_position,
            **self._more, next_positions=list(next_positions),
        )  # fmt: skip
        self.world.frame(self.session, self.destination, opening)
        if credit is not None:
            self.credit(credit)

    def close(self, *, unsubscribe: bool = False) -> None:
        self.world.frame(self.session, self.destination, frames.ConsumerClose(self.number, unsubscribe))
