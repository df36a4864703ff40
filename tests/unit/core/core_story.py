"""A random story of one destination, told in full: everything that was asked for, done and sent, step by step.

The same seed tells the same story as long as the message manager does the same. So whatever must make no difference is
changed, and the tellings compared.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from angarium.core.destination.events import DestinationSettings, Tick, Written
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Frame, Outcome
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns

_CONSUMERS_MAX = 4
_OUTCOMES = (Outcome.SETTLE, Outcome.SETTLE, Outcome.RELEASE, Outcome.REJECT)
_COLOURS = ("red", "blue")

Sent = tuple[bytes, Frame, bytes]


@dataclass(eq=False)
class Taker:
    consumer: Consumer
    limit: int
    is_cut: bool = False


class Story:
    def __init__(self, seed: int, *, hurries: bool = False, reads_at_once: bool = False) -> None:
        """`hurries`: of writes that are durable, confirms and deliveries are asked for before anything else.
        `reads_at_once`: and what is read for these is answered then, as memory does."""
        self.random = random = Random(seed)
        self.hurries = hurries
        self.reads_at_once = reads_at_once
        self.told: list[str] = []  # all that was asked of the disk and done by it, and each step
        self.sent: list[Sent] = []
        self.held: dict[bytes, RangeSet] = {}  # by session: what its client has to settle
        self.world = World(self._settings(), auto=True)
        self.world.on_sent = self._sent
        self.is_topic = random.random() < 0.3
        self.has_groups = random.random() < 0.2
        self.has_expiry = random.random() < 0.25
        self.has_priorities = random.random() < 0.15
        self.selectors = ["", "colour = 'red'"] if random.random() < 0.25 else [""]
        self.destination = self._create()
        self.takers: list[Taker] = []
        self.producers: list[Producer] = [self.world.producer(self.destination) for _ in range(2)]
        self.bodies = 0
        self.world.auto = False
        for _ in range(random.randint(1, 2)):
            self._open()
        self.rest()

    def _settings(self) -> DestinationSettings:
        few = self.random.random() < 0.2
        return DestinationSettings(in_flight_max=self.random.randint(2, 6)) if few else DestinationSettings()

    def _create(self) -> int:
        options: dict[str, Any] = {}
        if self.random.random() < 0.3:
            options["redeliveries_max"] = 1
        if self.random.random() < 0.15:
            options |= {"messages_max": 5, "over_limit": self.random.choice(["oldest", "refuse", "block"])}
        if self.random.random() < 0.1:
            options["traced"] = True
        kind = "topic" if self.is_topic else "queue"
        assert not self.world.request("destination.create", name="d", kind=kind, **options).code
        return self.world.locate("d", DestinationKind.ANY)

    def _sent(self, session: bytes, frame: Frame, payload: bytes) -> None:
        self.sent.append((session, frame, payload))
        self.told.append(f"{session.hex()[-4:]} {frame} {payload.hex()}")
        if isinstance(frame, frames.Deliver):
            for position in frame.positions(Batch.parse(payload).count):
                self.held.setdefault(session, RangeSet()).add(position, position + 1)

    # -- the disk ------------------------------------------------------------------------------------

    def complete(self, count: int) -> None:
        """A group of so many writes becomes durable."""
        disk, manager = self.world.disk, self.world.manager
        group = [write for write in (disk.complete_next() for _ in range(count)) if write is not None]
        tokens = [write.token for write in group]
        if self.hurries and tokens:
            self.world._run(manager.confirms(tokens))
            self.world._run(manager.deliveries(tokens, now=self.world.now))
            while self.reads_at_once and self._read():
                manager.check()
        for write in group:
            self.told.append(f"written {write.operations} {write.freeing} {write.patient}")
            self.world._run(manager.handle(Written(write.token), now=self.world.now))
            manager.check()

    def _work(self) -> None:
        """Of the disk: some groups, some reads."""
        for _ in range(self.random.choice((0, 1, 2, 6))):
            self.complete(self.random.randint(1, 4))
            for _ in range(self.random.randint(0, 2)):
                if self.world.reads:
                    self.told.append(f"read {self.world.reads[0]}")
                    self._read()

    def _read(self) -> bool:
        checked, self.world.is_checked = self.world.is_checked, False
        is_read = self.world.complete_read()
        self.world.is_checked = checked
        return is_read

    def rest(self) -> None:
        """Until nothing is left to do."""
        while self.world.disk.waiting or self.world.reads:
            self.complete(self.random.randint(1, 4))
            while self._read():
                pass

    # -- what clients do -------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        doings = [self._publish] * 8 + [self._settle] * 6 + [self._open] * 2 + [self._credit] * 3
        doings += [self._pass_time] * 2 + [self._resume] * 2 + [self._close, self._cut, self._stall, self._restart]
        for step in range(steps):
            doing = self.random.choice(doings)
            self.told.append(f"-- {step} {doing.__name__}")
            doing()
            self._work()
            for consumer in self.world.destination(self.destination).consumers.values():
                self.told.append(f"{consumer.session.hex()[-4:]} has {consumer.held} since {consumer.held_since}")
        self.told.append("-- rest")
        self.rest()
        self.world.advance(10.0)
        self.rest()
        self.told.append(f"-- {self.world.manager.destinations[self.destination].counters}")

    def _publish(self) -> None:
        count = self.random.choice((1, 1, 1, 2, 3))
        bodies = [b"%d" % number for number in range(self.bodies, self.bodies + count)]
        self.bodies += count
        self.random.choice(self.producers).publish(*bodies, columns=self._columns(count))

    def _columns(self, count: int) -> MessageColumns:
        def some(is_there: bool, values: Sequence[Any]) -> list[Any] | None:
            if not is_there or self.random.random() < 0.4:
                return None
            return [self.random.choice(values) for _ in range(count)]

        soon, late = self.world.wall_ms + 500, self.world.wall_ms + 60_000
        return columns(
            properties=[{"colour": self.random.choice(_COLOURS)} for _ in range(count)] if self.selectors[1:] else None,
            groups=some(self.has_groups, ["a", "b", None]),
            priorities=some(self.has_priorities, [4, 4, 9]),
            expiries_ms=some(self.has_expiry, [0, soon, soon, late]),
        )

    def _open(self) -> None:
        if len(self.takers) >= _CONSUMERS_MAX:
            return
        limit = self.random.choice((0, 1, 5, 50, 50, 50))
        options: dict[str, Any] = {"selector": self.random.choice(self.selectors), "credit": limit}
        if self.is_topic:
            name = self.random.choice(("", "", "s", "s", "t"))
            # What is shared has one selector.
            options |= {"subscription": name, "shared": bool(name), "durable": name == "s"}
            options["selector"] = options["selector"] if name != "s" else ""
        elif self.random.random() < 0.1:
            options["exclusive"] = True
        self.takers.append(Taker(Consumer(self.world, self.destination, **options), limit))

    def _taker(self, *, is_cut: bool = False) -> Taker | None:
        found = [taker for taker in self.takers if taker.is_cut == is_cut]
        return self.random.choice(found) if found else None

    def _some_held(self, taker: Taker) -> list[Range]:
        positions = [position for part in self.held.get(taker.consumer.session, ()) for position in range(*part)]
        chosen = positions if self.random.random() < 0.5 else [p for p in positions if self.random.random() < 0.5]
        return list(RangeSet([(position, position + 1) for position in chosen]))

    def _settle(self) -> None:
        if (taker := self._taker()) is None or not (ranges := self._some_held(taker)):
            return
        for part in ranges:
            self.held[taker.consumer.session].remove(*part)
        if self.random.random() < 0.3:
            taker.limit += self.random.randint(1, 5)
            taker.consumer.settle(*ranges, outcome=self.random.choice(_OUTCOMES), credit=taker.limit)
        else:
            taker.consumer.settle(*ranges, outcome=self.random.choice(_OUTCOMES))

    def _credit(self) -> None:
        if (taker := self._taker()) is not None:
            taker.limit += self.random.randint(1, 20)
            taker.consumer.credit(taker.limit)

    def _close(self) -> None:
        if (taker := self._taker()) is not None:
            self.takers.remove(taker)
            taker.consumer.close()

    def _pass_time(self) -> None:
        self.world.now += self.random.choice((0.001, 0.1, 0.6, 3.0))
        self.world.tell(Tick())

    def _cut(self) -> None:
        if self.random.random() < 0.5 and (taker := self._taker()) is not None:
            taker.is_cut = True
            self.world.end(taker.consumer.session, closed=False)

    def _resume(self) -> None:
        if (taker := self._taker(is_cut=True)) is not None:
            taker.is_cut = False
            taker.limit += 3
            taker.consumer.resume(list(self.held.get(taker.consumer.session, ())), credit=taker.limit)

    def _stall(self) -> None:
        if (taker := self._taker()) is not None:
            self.world.stall(taker.consumer.session, self.random.random() < 0.3)

    def _restart(self) -> None:
        """Some of what waits had reached the disk; some consumers come back, and other producers."""
        if self.random.random() < 0.7:
            return
        self.world = self.world.restarted(kept=self.random.randint(0, len(self.world.disk.waiting)))
        self.world.on_sent = self._sent
        self.producers = [self.world.producer(self.destination) for _ in range(2)]
        self.takers = [taker for taker in self.takers if self.random.random() < 0.7]
        for taker in self.takers:
            taker.is_cut, taker.limit = False, 50
            held = list(self.held.get(taker.consumer.session, ()))
            taker.consumer.resume(held, credit=taker.limit, world=self.world)
