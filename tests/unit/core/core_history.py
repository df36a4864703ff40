"""Random histories of one queue: producers and consumers that behave as good clients do, over a node that does not.

`History` knows what was promised (confirms, answered settlements) and checks each delivery against it. One seed draws
everything. The node crashes with any part of its waiting writes on disk; the disk fills up; sessions are cut off.
"""
from dataclasses import dataclass, field
from random import Random

from angarium.core.ranges import RangeSet
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Outcome
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_manager import World


@dataclass
class Reader:
    """One consumer's client: what it holds, and what it has settled without an answer."""

    consumer: Consumer
    held: set[int] = field(default_factory=set)
    asked: dict[int, tuple[Outcome, list[int]]] = field(default_factory=dict)  # settlement number -> what
    answered: int = 0
    looked_at: int = 0  # frames of its session
    connected: bool = True


class History:
    def __init__(self, seed: int, *, crashes: bool = True, full_disks: bool = True) -> None:
        self.random = Random(seed)
        self.world = World(auto=False)
        self.crashes = crashes
        self.full_disks = full_disks
        session = self.world.session()
        self.world.frame(session, 0, frames.Locate("q", frames.DestinationKind.QUEUE))
        self.world.run_disk()
        self.queue = self.world.last(session, frames.Located).destination
        self.producers = [self.world.producer(self.queue) for _ in range(2)]
        self.sent: dict[bytes, list[bytes]] = {producer.identity: [] for producer in self.producers}
        self.confirmed: dict[bytes, int] = dict.fromkeys(self.sent, 0)
        self.readers: list[Reader] = []
        self.places: dict[bytes, int] = {}  # body -> position, once it was delivered
        self.finished: set[int] = set()  # positions whose settlement was answered
        self.touched: set[int] = set()  # positions that somebody wanted to settle

    # -- one step ------------------------------------------------------------------------------------

    def step(self) -> None:
        rare = [self.cut, self.resume, self.close, self.wait, self.release]
        if self.full_disks:
            rare.append(self.fill_or_clear)
        often = [self.publish, self.open, self.settle, self.settle, self.work, self.work]
        if self.crashes and self.random.random() < 0.05:
            self.crash()
        else:
            self.random.choice(rare if self.random.random() < 0.25 else often)()
        self.look()

    def work(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.random.choice([self.world.complete_write, self.world.complete_read])()

    def wait(self) -> None:
        self.world.advance(self.random.choice([0.1, 1.0, 3.0]))

    def fill_or_clear(self) -> None:
        if self.world.disk.full:
            self.world.unblock()
        else:
            self.world.block()

    def publish(self) -> None:
        producer = self.random.choice(self.producers)
        log = self.sent[producer.identity]
        bodies = [b"%s-%d" % (producer.identity[-1:].hex().encode(), len(log) + at) for at in range(1, 4)]
        bodies = bodies[: self.random.randint(1, 3)]
        log += bodies
        producer.publish(*bodies)

    def open(self) -> None:
        if len(self.readers) < 3:
            credit = self.random.choice([1, 3, 100])
            self.readers.append(Reader(self.world.consumer(self.queue, credit=credit)))

    def _reader(self, *, connected: bool = True) -> Reader | None:
        found = [reader for reader in self.readers if reader.connected == connected]
        return self.random.choice(found) if found else None

    def settle(self) -> None:
        self._finish(self.random.choice([Outcome.SETTLE, Outcome.SETTLE, Outcome.REJECT]))

    def release(self) -> None:
        self._finish(Outcome.RELEASE)

    def _finish(self, outcome: Outcome) -> None:
        reader = self._reader()
        if reader is None or not reader.held:
            return
        chosen = self.random.sample(sorted(reader.held), k=self.random.randint(1, len(reader.held)))
        reader.held.difference_update(chosen)
        reader.asked[reader.consumer._settlements + 1] = (outcome, chosen)
        if outcome is not Outcome.RELEASE:
            self.touched.update(chosen)
        reader.consumer.settle(*_ranges(chosen), outcome=outcome, credit=self.random.choice([-1, 10_000]))

    def cut(self) -> None:
        reader = self._reader()
        if reader is not None:
            self._disconnect(reader)

    def _disconnect(self, reader: Reader) -> None:
        reader.connected = False
        self.world.end(reader.consumer.session, closed=False)
        reader.looked_at = len(self.world.sent.get(reader.consumer.session, []))  # what was under way is lost

    def resume(self) -> None:
        """Claim what is held or settled without an answer, say the settlements again, then grant credit."""
        reader = self._reader(connected=False)
        if reader is None:
            return
        reader.connected = True
        reader.looked_at = len(self.world.sent.get(reader.consumer.session, []))
        claimed = set(reader.held)
        for _, positions in reader.asked.values():
            claimed.update(positions)
        consumer = reader.consumer
        consumer.resume(_ranges(claimed), credit=None, world=self.world)
        for number, (outcome, positions) in sorted(reader.asked.items()):
            settle = frames.Settle(consumer.number, number, outcome, _ranges(positions))
            self.world.frame(consumer.session, self.queue, settle)
        consumer.credit(self.random.choice([0, 5, 10_000]))

    def close(self) -> None:
        reader = self._reader()
        if reader is not None:
            self.look()
            self.readers.remove(reader)
            self.world.end(reader.consumer.session, closed=True)

    def crash(self) -> None:
        for reader in self.readers:
            reader.connected = False
        self.note_confirms()
        kept = self.random.randint(0, len(self.world.disk.waiting)) if not self.world.disk.full else 0
        self.world = self.world.restarted(kept=kept, after_s=self.random.choice([0.0, 1.0]))
        for producer in self.producers:
            self._take_up(producer)

    def _take_up(self, producer: Producer) -> None:
        """Resume, and send again what the log has not."""
        producer.world = self.world
        opening = frames.ProducerOpen(
            producer.number, "x", frames.DestinationKind.ANY, producer.identity, self.confirmed[producer.identity]
        )
        self.world.frame(producer.session, self.queue, opening)
        log, known = self.sent[producer.identity], producer.opened.sequence
        assert self.confirmed[producer.identity] <= known <= len(log), "the log forgot what it had confirmed"
        if known < len(log):
            producer.send(known + 1, *log[known:])

    # -- what clients see ------------------------------------------------------------------------------

    def look(self) -> None:
        self.note_confirms()
        for reader in self.readers:
            session = reader.consumer.session
            fresh = self.world.sent.get(session, [])[reader.looked_at :]
            reader.looked_at += len(fresh)
            for frame, payload in fresh if reader.connected else ():
                self._see(reader, frame, payload)

    def note_confirms(self) -> None:
        for producer in self.producers:
            if producer.world is self.world:
                last = self.confirmed[producer.identity]
                self.confirmed[producer.identity] = max(last, producer.confirmed)

    def _see(self, reader: Reader, frame: frames.Frame, payload: bytes) -> None:
        match frame:
            case frames.ConsumerOpened(_, lost):
                reader.held.difference_update(p for part in lost for p in range(*part))
            case frames.Settled(_, number, lost):
                outcome, positions = reader.asked.pop(number, (Outcome.RELEASE, []))
                if outcome is not Outcome.RELEASE:
                    missed = {p for part in lost for p in range(*part)}
                    self.finished.update(set(positions) - missed)
            case frames.Deliver():
                batch = Batch.parse(payload)
                for at, body in zip(frame.positions(batch.count), batch.bodies(), strict=True):
                    assert self.places.setdefault(body, at) == at, f"{body!r} is in the log twice"
                    assert at not in self.finished, f"{at} was settled, and delivered again"
                    assert at not in reader.held, f"{at} was delivered twice to a session that survived"
                    reader.held.add(at)
                    for outcome, positions in reader.asked.values():
                        if outcome is Outcome.RELEASE and at in positions:
                            positions.remove(at)  # its coming answers the release

    # -- the end -------------------------------------------------------------------------------------

    def heal(self) -> list[tuple[int, bytes]]:
        """All faults end; everybody leaves; what a last consumer then gets is returned."""
        if self.world.disk.full:
            self.world.unblock()
        for producer in self.producers:
            if producer.world is not self.world:
                self._take_up(producer)
        self.world.run_disk()
        self.look()
        for producer in self.producers:
            assert self.confirmed[producer.identity] == len(self.sent[producer.identity]), "a confirm is missing"
        for reader in self.readers:
            if reader.connected:
                self._disconnect(reader)
        self.readers = []
        self.world.advance(10)
        self.world.run_disk()
        last = self.world.consumer(self.queue, credit=1_000_000)
        self.world.run_disk()
        return [(position, body) for position, body, _ in last.deliveries]

    def check_drained(self, drained: list[tuple[int, bytes]]) -> None:
        positions = [position for position, _ in drained]
        assert positions == sorted(set(positions)), "in order, and each once"
        assert not self.finished & set(positions), "a settled message came back"
        for position, body in drained:
            assert self.places.setdefault(body, position) == position
        there = {body for _, body in drained}
        for log in self.sent.values():
            for body in log:
                assert body in there or self.places.get(body) in self.touched, f"{body!r} was confirmed and is lost"
        for log in self.sent.values():
            order = [self.places[body] for body in log if body in self.places]
            assert order == sorted(order), "the order of a producer's messages"


def _ranges(positions: set[int] | list[int]) -> list[tuple[int, int]]:
    return list(RangeSet((position, position + 1) for position in positions))
