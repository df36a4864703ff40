"""Goal: frames for one destination keep their order, and a flood for one delays another by no more than one frame.
Method: the bus on a real event loop, with a receiver that writes down what comes."""
import asyncio
from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from angarium.core.destination.events import FromSession
from angarium.core.wire.frames import Ping
from angarium.runtime.bus import InProcessBus

_SEARCH = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def envelope(destination: int, number: int) -> FromSession:
    return FromSession(b"s", destination, Ping(number))


async def rest(bus: InProcessBus, after_turn: Callable[[], None] = lambda: None) -> None:
    """Let the loop turn until the bus has nothing left to do."""
    for _ in range(20_000):
        if bus._next_run is None:
            return
        await asyncio.sleep(0)  # one turn
        after_turn()
    raise AssertionError("the bus does not come to rest")


def run(script: Callable[[InProcessBus, list[tuple[int, int]]], None]) -> list[tuple[int, int]]:
    """Everything that was delivered, as (destination, number), in order."""
    delivered: list[tuple[int, int]] = []

    async def main() -> None:
        def deliver(item: FromSession) -> None:
            assert isinstance(item.frame, Ping)
            delivered.append((item.destination, item.frame.number))

        bus = InProcessBus(deliver, lambda sender, size_bytes: None)
        script(bus, delivered)
        await rest(bus)

    asyncio.run(main())
    return delivered


def test_a_flood_delays_another_destination_by_one_frame() -> None:
    def script(bus: InProcessBus, delivered: list[tuple[int, int]]) -> None:
        for number in range(10_000):
            bus.post(envelope(1, number))
        bus.post(envelope(2, 0))

    delivered = run(script)
    assert delivered.index((2, 0)) <= 1
    assert len(delivered) == 10_001


@_SEARCH
@given(st.lists(st.integers(0, 4), max_size=200))
def test_every_destination_keeps_its_order_and_takes_its_turn(destinations: list[int]) -> None:
    def script(bus: InProcessBus, delivered: list[tuple[int, int]]) -> None:
        for number, destination in enumerate(destinations):
            bus.post(envelope(destination, number))

    delivered = run(script)
    assert sorted(delivered, key=lambda item: item[1]) == [(d, n) for n, d in enumerate(destinations)]
    left = Counter(destinations)
    since_last: dict[int, Counter[int]] = {destination: Counter() for destination in left}
    for destination, _ in delivered:
        left[destination] -= 1
        since_last[destination] = Counter()
        for other, waited in since_last.items():
            if other != destination and left[other]:
                waited[destination] += 1
                assert waited[destination] <= 1, f"{other} was passed over by {destination}"
    for destination in since_last:
        numbers = [number for at, number in delivered if at == destination]
        assert numbers == sorted(numbers)


def test_what_is_posted_while_delivering_waits_for_its_turn() -> None:
    delivered: list[int] = []

    async def main() -> None:
        def deliver(item: FromSession) -> None:
            delivered.append(item.destination)
            if len(delivered) < 20:
                bus.post(envelope(1, 0))  # a destination that always has more

        bus = InProcessBus(deliver, lambda sender, size_bytes: None)
        bus.post(envelope(1, 0))
        bus.post(envelope(2, 0))
        bus.post(envelope(3, 0))
        await rest(bus)

    asyncio.run(main())
    assert delivered[:3] == [1, 2, 3]


def test_one_turn_of_the_loop_handles_a_bounded_number() -> None:
    """Sockets are served between turns, however much waits."""
    sizes: list[int] = []

    async def main() -> None:
        delivered: list[FromSession] = []
        bus = InProcessBus(delivered.append, lambda sender, size_bytes: None)
        for number in range(5_000):
            bus.post(envelope(number % 3, number))
        await rest(bus, lambda: sizes.append(len(delivered) - sum(sizes)))

    asyncio.run(main())
    assert sum(sizes) == 5_000
    assert max(sizes) <= 256


def test_who_does_not_want_to_wait_has_it_handled_at_once_and_only_once() -> None:
    async def main() -> None:
        delivered: list[FromSession] = []
        bus = InProcessBus(delivered.append, lambda sender, size_bytes: None)
        bus.post(envelope(1, 1))
        bus.run()
        assert len(delivered) == 1
        assert bus._next_run is None
        await asyncio.sleep(0)
        assert len(delivered) == 1

    asyncio.run(main())


def test_an_idle_bus_schedules_nothing() -> None:
    async def main() -> None:
        delivered: list[FromSession] = []
        bus = InProcessBus(delivered.append, lambda sender, size_bytes: None)
        bus.post(envelope(1, 1))
        await asyncio.sleep(0)
        assert len(delivered) == 1
        assert bus._next_run is None
        bus.post(envelope(1, 2))
        await asyncio.sleep(0)
        assert len(delivered) == 2

    asyncio.run(main())


def test_who_posted_is_told_of_every_frame_that_is_handled() -> None:
    handled: list[tuple[int, int]] = []

    async def main() -> None:
        bus = InProcessBus(lambda item: None, lambda sender, size_bytes: handled.append((sender, size_bytes)))
        bus.post(envelope(1, 1), 7, 30)
        bus.post(envelope(2, 2), 8, 40)
        bus.post(envelope(1, 3))  # the node's own: nobody waits for it
        await rest(bus)

    asyncio.run(main())
    assert handled == [(7, 30), (8, 40)]


def test_it_is_idle_only_while_nothing_waits() -> None:
    """Who hands a frame over himself, past the queues, must not overtake what is in them."""
    seen: list[bool] = []

    def script(bus: InProcessBus, delivered: list[tuple[int, int]]) -> None:
        seen.append(bus.is_idle)
        for number in range(1_000):
            bus.post(envelope(1, number))
        seen.append(bus.is_idle)
        bus.run()  # as many as a turn takes: some are left
        seen.append(bus.is_idle)
        while len(delivered) < 1_000:
            bus.run()
        seen.append(bus.is_idle)

    run(script)
    assert seen == [True, False, False, True]
