"""Traffic that goes on through faults, and the proof that nothing was lost, doubled or changed.

Two producers fill a queue that two consumers share; one producer feeds a topic with two durable subscribers. Every one
has a connection of its own, and thousands of sends in flight. The traffic goes on until the faults are over; then
everything is drained and compared.

The guarantees, for sessions that survive:
- every send is confirmed once, under an id of its own, and received once on the queue and once by each subscriber
- no session is given a message twice
- a consumer that is alone gets each producer's messages in order; of competing ones, a message may come late only if it
  was on its way when a fault happened
"""
import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import angarium
from angarium.client.consumer import Consumer
from tests.process.process_broker import WAIT_S, until_async
from tests.process.process_ledger import Inbox, assert_same, body_of

QUEUE = angarium.Queue("work")
TOPIC = angarium.Topic("news")
QUEUE_PRODUCERS = ("alpha", "beta")
TOPIC_PRODUCERS = ("gamma",)
SUBSCRIBERS = ("first", "second")
IN_FLIGHT_MAX = 3_000
_BURST = 100  # messages sent at once, then a short pause: some 10,000 a second from each producer
_PAUSE_S, _LONG_PAUSE_S = 0.005, 0.05
# Quick to come back, so that a test is: what is tested is what happens then.
EAGER = angarium.ReconnectPolicy(delay_first_s=0.02, delay_max_s=0.1)
# Sessions come back in milliseconds here, but a busy machine may take its time to start a broker.
PATIENT = {"destination.resume_grace_s": 20.0}


class Traffic:
    def __init__(self, address: str | list[str], *, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.sent: dict[str, list[bytes]] = {name: [] for name in (*QUEUE_PRODUCERS, *TOPIC_PRODUCERS)}
        self.ids: dict[str, list[bytes]] = {name: [] for name in self.sent}  # of what was confirmed, in order
        self.workers = [Inbox("worker-0"), Inbox("worker-1")]
        self.subscribers = [Inbox(name) for name in SUBSCRIBERS]
        self._address = address
        self._pause_s = _PAUSE_S
        self._faults_over = asyncio.Event()
        self._sent_before_fault: dict[str, int] = {}
        self._is_troubled = False  # the test has done something that may cost a connection
        self._losses: list[str] = []  # of connections
        self._consumers: list[Consumer] = []

    @property
    def confirmed_count(self) -> int:
        return sum(map(len, self.ids.values()))

    @property
    def received_count(self) -> int:
        return sum(len(inbox.bodies) for inbox in (*self.workers, *self.subscribers))

    def note_fault(self) -> None:
        """To be called by whoever makes trouble, at the latest when it is over."""
        self._is_troubled = True
        self._note_disorder()

    def _watch(self, name: str, connection: angarium.Connection) -> None:
        """A connection that is lost excuses disorder, and must not be lost in a run without trouble."""

        def changed() -> None:
            self._note_disorder()
            if not connection.is_connected:
                self._losses.append(f"{name}: {connection.loss}")

        connection.on_change = changed

    def _note_disorder(self) -> None:
        """What was sent by now may come late."""
        self._sent_before_fault = {name: len(bodies) for name, bodies in self.sent.items()}

    @contextmanager
    def slowly(self) -> Iterator[None]:
        """Some traffic goes on, and leaves processors to a node that starts."""
        self._pause_s = _LONG_PAUSE_S
        try:
            yield
        finally:
            self._pause_s = _PAUSE_S

    async def more_confirmed(self, count: int) -> None:
        """Wait until that many more were confirmed than now: the traffic flows."""
        wanted = self.confirmed_count + count
        await until_async(lambda: self.confirmed_count >= wanted, f"{count} more messages confirmed")

    async def everybody_goes_on(self, count: int) -> None:
        """Wait until each producer has that many more confirmed, and each consumer has received some of them."""
        inboxes = (*self.workers, *self.subscribers)
        confirmed = {name: len(ids) + count for name, ids in self.ids.items()}
        received = {inbox.name: len(inbox.bodies) + count // 10 for inbox in inboxes}

        def lacking() -> list[str]:
            waits = [name for name, ids in self.ids.items() if len(ids) < confirmed[name]]
            return waits + [inbox.name for inbox in inboxes if len(inbox.bodies) < received[inbox.name]]

        await until_async(lambda: not lacking(), lambda: f"all go on, but {lacking()}")

    async def run(self, faults: Callable[["Traffic"], Awaitable[None]]) -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            readers = []
            for inbox in self.workers:
                readers.append(await self._reader(stack, group, inbox, QUEUE, None))
            for inbox in self.subscribers:
                readers.append(await self._reader(stack, group, inbox, TOPIC, inbox.name))
            producers = [
                group.create_task(self._produce(name, QUEUE if name in QUEUE_PRODUCERS else TOPIC))
                for name in self.sent
            ]
            await faults(self)
            self._faults_over.set()
            await asyncio.wait_for(asyncio.gather(*producers), WAIT_S)
            await until_async(lambda: self.received_count >= self._expected_count(), self._state)
            for session, task in readers:
                await asyncio.wait_for(session.sync(), WAIT_S)
                task.cancel()
            await self._assert_drained()
            assert self._is_troubled or not self._losses, f"nobody did anything to these connections: {self._losses}"
        self.check()

    async def _reader(
        self, stack: AsyncExitStack, group: asyncio.TaskGroup, inbox: Inbox, destination: angarium.Destination,
        durable: str | None,
    ) -> tuple[angarium.Session, "asyncio.Task[None]"]:  # fmt: skip
        connection = await stack.enter_async_context(angarium.connect(self._address, reconnect=EAGER))
        self._watch(inbox.name, connection)
        session = await stack.enter_async_context(connection.session())
        prefetch = self.chance.choice((100, 1_000, 5_000))
        consumer = session.consume(destination, durable=durable, prefetch=prefetch)
        await consumer.opened()
        self._consumers.append(consumer)
        return session, group.create_task(self._read(inbox, consumer))

    async def _read(self, inbox: Inbox, consumer: Consumer) -> None:
        async for message in consumer:
            inbox.take(message)
            await message.settle()

    async def _produce(self, name: str, destination: angarium.Destination) -> None:
        sent, ids = self.sent[name], self.ids[name]
        waiting: list[angarium.Sending] = []
        async with angarium.connect(self._address, reconnect=EAGER) as connection, connection.session() as session:
            self._watch(name, connection)
            while not self._faults_over.is_set():
                for _ in range(_BURST):
                    sent.append(body_of(name, len(sent)))
                    waiting.append(session.send(destination, sent[-1]))
                await asyncio.sleep(self._pause_s)
                while waiting and (waiting[0].done or len(waiting) > IN_FLIGHT_MAX):
                    ids.append(await waiting.pop(0))
            for sending in waiting:
                ids.append(await sending)
            connection.on_change = None  # it is closed now

    def _expected_count(self) -> int:
        queued = sum(len(self.sent[name]) for name in QUEUE_PRODUCERS)
        published = sum(len(self.sent[name]) for name in TOPIC_PRODUCERS)
        return queued + published * len(SUBSCRIBERS)

    def _state(self) -> str:
        sent = {name: len(bodies) for name, bodies in self.sent.items()}
        received = {inbox.name: len(inbox.bodies) for inbox in (*self.workers, *self.subscribers)}
        return f"all received: sent {sent}, confirmed {self.confirmed_count}, received {received}"

    async def _assert_drained(self) -> None:
        async with angarium.connect(self._address) as connection:
            for destination in (QUEUE, TOPIC):
                described = (await connection.request("destination.describe", {"name": destination.name})).result
                assert described["messages"] == 0, described
                assert described["in_flight"] == 0, described

    def check(self) -> None:
        queued = [body for name in QUEUE_PRODUCERS for body in self.sent[name]]
        assert_same([body for worker in self.workers for body in worker.bodies], queued)
        published = [body for name in TOPIC_PRODUCERS for body in self.sent[name]]
        for subscriber in self.subscribers:
            assert_same(subscriber.bodies, published)
            assert subscriber.disorders == []
        for worker in self.workers:
            for producer, number, highest in worker.disorders:
                before_fault = self._sent_before_fault.get(producer, 0)
                assert number < before_fault, f"{worker.name}: {producer} {number} after {highest}, and no fault"
        self._check_ids()
        assert [consumer.lost_count for consumer in self._consumers] == [0] * len(self._consumers)

    def _check_ids(self) -> None:
        for name, ids in self.ids.items():
            assert len(ids) == len(set(ids)) == len(self.sent[name]), f"{name}: confirmed {len(ids)}"
        queued = {identity for name in QUEUE_PRODUCERS for identity in self.ids[name]}
        assert queued == self.workers[0].ids | self.workers[1].ids
        published = {identity for name in TOPIC_PRODUCERS for identity in self.ids[name]}
        for subscriber in self.subscribers:
            assert subscriber.ids == published
