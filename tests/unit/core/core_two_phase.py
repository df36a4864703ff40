"""One side of a two-phase commit, told what it would hear: a participant (group 2) or a decider (group 1)."""
from typing import Any

from angarium.core.destination.events import DestinationSettings
from angarium.core.ids import ANYBODY, destination_id
from angarium.core.ranges import Range
from angarium.core.transaction.coordinator import COORDINATOR
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame
from angarium.core.wire.packing import pack
from tests.unit.core.core_manager import World

DECIDER, GROUP = 1, 2
SETTINGS = DestinationSettings(in_doubt_s=5.0)
OF_TRANSACTIONS = (
    frames.Committed, frames.Aborted, frames.CommitReady, frames.CommitFail, frames.CommitFinal, frames.CommitRollback,
    frames.CommitComplete, frames.CommitQuestion,
)  # fmt: skip


class Participant:
    """A session at one group: it takes from `in` and sends to `out`."""

    def __init__(self, group: int = GROUP, settings: DestinationSettings = SETTINGS) -> None:
        self.world = World(settings, number=group)
        self.group = group
        self.session = self.world.session()
        self.consumer = self.world.consumer(self.world.queue_with(3, name="in"), session=self.session)
        self.producer = self.world.producer(self.world.locate("out"), session=self.session)

    def parts(self, bodies: tuple[bytes, ...], ranges: list[Range]) -> tuple[list[Any], list[Any], bytes]:
        batch = pack(self.producer.identity, self.producer.sequence + 1, self.world.wall_ms, bodies) if bodies else b""
        publishes = [(self.producer.destination, self.producer.number, len(batch))] if bodies else []
        settles = [(self.consumer.destination, self.consumer.number, ranges)] if ranges else []
        return publishes, settles, batch

    def prepare(
        self, number: int, *bodies: bytes, settles: Range | None = (0, 2), attachment: bytes = b""
    ) -> None:
        publishes, settled, payload = self.parts(bodies, [settles] if settles else [])
        self.frame(frames.CommitPrepare(number, publishes, settled, attachment, DECIDER), payload)

    def decide(self, number: int, *bodies: bytes, participants: tuple[int, ...] = (GROUP,)) -> None:
        publishes, settled, payload = self.parts(bodies, [(0, 2)])
        self.frame(frames.TransactionCommit(number, publishes, settled, b"", list(participants)), payload)

    def frame(self, frame: Frame, payload: bytes = b"", *, by: bytes | None = None) -> None:
        self.world.frame(self.session if by is None else by, destination_id(self.group, 0), frame, payload)

    def final(self, number: int, *, by: bytes | None = None) -> None:
        self.frame(frames.CommitFinal(self.session, number, GROUP, DECIDER), by=by)

    def roll_back(self, number: int) -> None:
        self.frame(frames.CommitRollback(self.session, number, GROUP, DECIDER))

    def ask(self, number: int, *, by: bytes = ANYBODY) -> None:
        self.frame(frames.CommitQuestion(self.session, number, GROUP, DECIDER), by=by)

    def restart(self, *, kept: int = 0) -> None:
        self.world = self.world.restarted(kept=kept)

    def told(self, session: bytes | None = None) -> list[Frame]:
        """And forgotten here."""
        found = self.world.sent.pop(self.session if session is None else session, [])
        return [frame for frame, _ in found if isinstance(frame, OF_TRANSACTIONS)]

    def counts(self) -> tuple[int, int]:
        return self.world.describe("in")["messages"], self.world.describe("out")["messages"]


def complete(side: Participant, number: int) -> frames.CommitComplete:
    return frames.CommitComplete(side.session, number, GROUP, DECIDER)


def decided(side: Participant, number: int) -> frames.CommitFinal:
    return frames.CommitFinal(side.session, number, COORDINATOR, DECIDER)
