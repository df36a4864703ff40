"""Goal: a queue whose consumers have selectors, with groups and priorities, does what a list would do.
Method: the model is a list of messages; hypothesis draws publishing, consuming, settling, closing, cuts and restarts.
Each delivery has to be allowed by the model, and after each step nothing is left free that somebody with credit is to
have."""
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Deliver, Frame
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns
from tests.unit.core.core_settings import QUICK

_SELECTORS = {"": None, "colour = 'red'": "red", "colour = 'blue'": "blue"}
_messages = st.tuples(st.sampled_from(["red", "blue"]), st.sampled_from([None, "a", "b"]), st.sampled_from([1, 4, 9]))
_fractions = st.floats(0, 1, exclude_max=True)


@dataclass(eq=False)
class Message:
    colour: str
    group: str | None
    stream: tuple[int, int, str | None]  # producer, priority, group: in order
    number: int
    position: int = -1  # once it was delivered
    releases: int = 0
    is_vague: bool = False  # since a restart it may have been counted once more
    holder: "Taker | None" = None
    is_settled: bool = False


@dataclass(eq=False)
class Taker:
    consumer: Consumer
    colour: str | None
    limit: int
    received: int = 0
    is_cut: bool = False
    last: dict[tuple[int, int, str | None], int] = field(default_factory=dict)

    def wants(self, message: Message) -> bool:
        return self.colour in (None, message.colour)


class QueueAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.sent: list[tuple[bytes, Deliver, Batch]] = []
        self.world.on_sent = self._sent
        self.queue = self.world.locate("q")
        self.producers: list[Producer] = [self.world.producer(self.queue) for _ in range(2)]
        self.messages: list[Message] = []
        self.takers: list[Taker] = []
        self.owners: dict[str, list[Taker]] = {}

    # -- what arrives --------------------------------------------------------------------------------

    def _sent(self, session: bytes, frame: Frame, payload: bytes) -> None:
        if isinstance(frame, Deliver):
            self.sent.append((session, frame, Batch.parse(payload)))

    def _look(self) -> None:
        """Take note of new deliveries: each must have been allowed."""
        sent, self.sent = self.sent, []
        for session, frame, batch in sent:
            taker = next(taker for taker in self.takers if taker.consumer.session == session)
            taker.received += batch.count
            assert taker.received <= taker.limit, "no more than its credit"
            for index, position in enumerate(frame.positions(batch.count)):
                message = self.messages[int(batch.body(index))]
                message.position = position
                self._arrive(taker, message, frame.redeliveries[index] if frame.redeliveries else 0)

    def _arrive(self, taker: Taker, message: Message, count: int) -> None:
        assert not message.is_settled and message.holder is None, "to one at a time, and not when it is settled"
        assert not taker.is_cut and taker.wants(message), "only what it has selected"
        if message.is_vague:
            assert message.releases <= count <= message.releases + 1, "what was delivered before is not forgotten"
            message.releases, message.is_vague = count, False
        assert count == message.releases, "redeliveries are counted"
        if message.group is not None:
            owners = self.owners.setdefault(message.group, [])
            owner = next((owner for owner in owners if owner.wants(message)), None)
            assert owner in (None, taker), "a group belongs to one consumer"
            if owner is None:
                owners.append(taker)
        if not count:
            assert taker.last.get(message.stream, -1) < message.number, "order per producer and priority"
            taker.last[message.stream] = message.number
        message.holder = taker

    @invariant()
    def nothing_is_left_that_somebody_is_to_have(self) -> None:
        ready = [taker for taker in self.takers if not taker.is_cut and taker.received < taker.limit]
        for message in self.messages:
            if message.is_settled or message.holder is not None:
                continue
            wanting = [taker for taker in ready if taker.wants(message)]
            if message.group is not None and wanting:
                owner = next((o for o in self.owners.get(message.group, ()) if o.wants(message)), None)
                wanting = wanting if owner is None else [taker for taker in wanting if taker is owner]
            assert not wanting, f"message {message.number} waits although somebody wants it"

    # -- what happens --------------------------------------------------------------------------------

    @rule(drawn=st.lists(_messages, min_size=1, max_size=6), by=st.sampled_from([0, 1]))
    def publish(self, drawn: list[tuple[str, str | None, int]], by: int) -> None:
        bodies = []
        for colour, group, priority in drawn:
            bodies.append(b"%d" % len(self.messages))
            self.messages.append(Message(colour, group, (by, priority, group), len(self.messages)))
        fields = columns(
            properties=[{"colour": colour} for colour, _, _ in drawn],
            groups=[group for _, group, _ in drawn] if any(group for _, group, _ in drawn) else None,
            priorities=[priority for _, _, priority in drawn],
        )
        self.producers[by].publish(*bodies, columns=fields)
        self._look()

    @precondition(lambda self: len(self.takers) < 4)
    @rule(selector=st.sampled_from(list(_SELECTORS)), credit=st.integers(0, 5))
    def consume(self, selector: str, credit: int) -> None:
        consumer = self.world.consumer(self.queue, credit=credit, selector=selector)
        self.takers.append(Taker(consumer, _SELECTORS[selector], credit))
        self._look()

    @precondition(lambda self: self.takers)
    @rule(at=_fractions, more=st.integers(1, 5))
    def credit(self, at: float, more: int) -> None:
        taker = self._taker(at)
        if not taker.is_cut:
            taker.limit = taker.received + more
            taker.consumer.credit(taker.limit)
            self._look()

    @precondition(lambda self: any(message.holder for message in self.messages))
    @rule(at=_fractions, released=st.booleans())
    def settle(self, at: float, released: bool) -> None:
        held = [m for m in self.messages if m.holder is not None and not m.holder.is_cut]
        if not held:
            return
        message = held[int(at * len(held))]
        taker = message.holder
        assert taker is not None
        position = message.position
        message.holder, message.is_settled = None, not released
        if released:
            message.releases += 1
            taker.consumer.release((position, position + 1))
        else:
            taker.consumer.settle((position, position + 1))
        self._look()

    @precondition(lambda self: self.takers)
    @rule(at=_fractions)
    def close(self, at: float) -> None:
        taker = self._taker(at)
        if not taker.is_cut:
            self._gone(taker)
            taker.consumer.close()
            self._look()

    @precondition(lambda self: self.takers)
    @rule(at=_fractions)
    def cut(self, at: float) -> None:
        taker = self._taker(at)
        if not taker.is_cut:
            taker.is_cut = True
            self.world.end(taker.consumer.session, closed=False)
            self._look()

    @rule()
    def wait(self) -> None:
        for taker in [taker for taker in self.takers if taker.is_cut]:
            self._gone(taker)
        self.world.advance(self.world.settings.resume_grace_s)
        self._look()

    @rule()
    def restart(self) -> None:
        self.world.rest()
        for message in self.messages:
            # Whether it was delivered, or passed over by all, is not stored; nor more than the first time.
            message.is_vague = True
            if message.holder is not None:
                message.holder, message.releases = None, max(1, message.releases)
        self.takers.clear()
        self.owners.clear()
        self.world = self.world.restarted()
        self.world.on_sent = self._sent
        for producer in self.producers:
            producer.resume(world=self.world)
        self.world.advance(self.world.settings.resume_grace_s)

    def teardown(self) -> None:
        for taker in list(self.takers):
            self._gone(taker)
            if not taker.is_cut:
                taker.consumer.close()
                self._look()
        self.world.advance(10)
        last = Taker(self.world.consumer(self.queue, credit=10_000), None, 10_000)
        self.takers, self.owners = [last], {}
        self._look()
        assert all(message.is_settled or message.holder is last for message in self.messages), "nothing is lost"
        if last.received:
            last.consumer.settle(*((m.position, m.position + 1) for m in self.messages if m.holder is last))
        assert self.world.describe("q")["messages"] == 0

    # -- the model's vocabulary ----------------------------------------------------------------------

    def _taker(self, at: float) -> Taker:
        return self.takers[int(at * len(self.takers))]

    def _gone(self, taker: Taker) -> None:
        self.takers.remove(taker)
        for owners in self.owners.values():
            if taker in owners:
                owners.remove(taker)
        for message in self.messages:
            if message.holder is taker:
                message.holder = None
                message.releases += 1


TestQueueAgainstList = QueueAgainstList.TestCase
TestQueueAgainstList.settings = settings(QUICK, stateful_step_count=30)
