"""Goal: the driver keeps the machine's order, whatever its users do when they are told something. Method: buses in one
event loop, real sockets on loopback."""
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from angarium.core.bus.events import BusSettings, ChannelBlocked, Delivered, MembersChanged, StreamStarted
from angarium.core.errors import LocalProtocolError, Unavailable
from angarium.runtime.cluster_bus import BusEvent, ClusterBus, ClusterBusSettings, NodeIdentity
from angarium.runtime.multicast import BusLink
from tests.process.process_broker import WAIT_S, free_port

CHANNEL = 5


class Node:
    def __init__(self, number: int, port: int, bus: BusSettings | None = None) -> None:
        self.me = bytes(15) + bytes([number])
        self.told: list[BusEvent] = []
        self.then: Callable[[BusEvent], None] = lambda event: None
        links = {0: BusLink("239.255.86.1", port, "127.0.0.1")}
        identity = NodeIdentity("test", b"0123456789abcdef", f"node-{number}", self.me)
        self.bus = ClusterBus(ClusterBusSettings(links, bus=bus or BusSettings()), identity, self._happened)

    def _happened(self, event: BusEvent) -> None:
        self.told.append(event)
        self.then(event)

    @property
    def got(self) -> list[tuple[int, bytes]]:
        delivered = [event for event in self.told if isinstance(event, Delivered)]
        return [(event.number + n, message) for event in delivered for n, message in enumerate(event.messages)]


@asynccontextmanager
async def pair(bus: BusSettings | None = None) -> AsyncIterator[tuple[Node, Node]]:
    port = free_port()
    one, two = Node(1, port, bus), Node(2, port, bus)
    for node in (one, two):
        await node.bus.start()
    one.bus.dial("127.0.0.1", two.bus.link_port)
    for node in (one, two):
        node.bus.change(MembersChanged(CHANNEL, 1, (one.me, two.me), (one.me, two.me)))
    try:
        await until(lambda: all(any(isinstance(e, StreamStarted) for e in n.told) for n in (one, two)))
        yield one, two
    finally:
        for node in (one, two):
            await node.bus.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 (a condition of several nodes)
            await asyncio.sleep(0.002)


def test_numbers_are_those_under_which_messages_arrive() -> None:
    async def story() -> None:
        async with pair() as (one, two):
            sent = [(one.bus.send(CHANNEL, [(b"%d" % n, b"!")]), b"%d!" % n) for n in range(100)]
            await asyncio.sleep(0)
            sent.append((one.bus.send(CHANNEL, [(bytes(200_000),)]), bytes(200_000)))
            sent.append((one.bus.send(CHANNEL, [(b"last",)]), b"last"))
            await until(lambda: len(two.got) == len(one.got) == 102)
            assert two.got == one.got == sent

    asyncio.run(story())


def test_who_is_told_something_may_send_and_change_members_at_once() -> None:
    async def story() -> None:
        async with pair() as (one, two):
            numbers: list[int] = []

            def answer(event: BusEvent) -> None:
                if isinstance(event, Delivered) and len(numbers) < 7:  # its own answers are among them
                    numbers.append(two.bus.send(CHANNEL, [(b"before",)]))
                    two.bus.change(MembersChanged(CHANNEL, 2 + len(numbers), (one.me, two.me), (one.me, two.me)))
                    numbers.append(two.bus.send(CHANNEL, [(b"between",)]))
                    two.bus.change(MembersChanged(CHANNEL, 3 + len(numbers), (one.me, two.me), (one.me, two.me)))
                    numbers.append(two.bus.send(CHANNEL, [(b"after",)]))

            two.then = answer
            one.bus.send(CHANNEL, [(b"go",)])
            await until(lambda: len(one.got) == 10)
            answers = [entry for entry in one.got if entry[1] != b"go"]
            assert [number for number, _ in answers] == sorted(numbers) == list(range(1, 10))
            assert dict(answers)[numbers[3]] == b"before"

    asyncio.run(story())


def test_whoever_sends_too_much_in_one_turn_can_know_it_in_that_turn() -> None:
    async def story() -> None:
        rings = {"ring_datagrams_low": 100, "ring_datagrams_high": 200, "ring_datagrams_max": 400}
        small = BusSettings(**rings, window_datagrams=64)
        async with pair(small) as (one, two):
            count = 0
            while not one.bus.is_blocked(CHANNEL):
                one.bus.send(CHANNEL, [(bytes(10_000),)])
                count += 1
            assert 20 <= count <= 30 and not any(isinstance(event, ChannelBlocked) for event in one.told)
            with pytest.raises(Unavailable, match="wait for ChannelUnblocked"):
                for _ in range(1_000):
                    one.bus.send(CHANNEL, [(bytes(10_000),)])
                    count += 1
            await until(lambda: len(two.got) == count)
            assert any(isinstance(event, ChannelBlocked) for event in one.told)
            assert not one.bus.is_blocked(CHANNEL)

    asyncio.run(story())


def test_what_a_closed_channel_was_asked_for_is_void() -> None:
    async def story() -> None:
        async with pair() as (one, _):
            def close(event: BusEvent) -> None:
                if isinstance(event, Delivered):
                    one.bus.change(MembersChanged(CHANNEL, 9, (), ()))
                    one.bus.send(CHANNEL, [(b"void",)])
                    one.bus.pause(CHANNEL, True)

            one.then = close
            one.bus.send(CHANNEL, [(b"go",)])
            await until(lambda: len(one.got) == 1)
            await asyncio.sleep(0.01)
            with pytest.raises(LocalProtocolError, match="not open"):
                one.bus.send(CHANNEL, [(b"x",)])
            assert not one.bus._unsent

    asyncio.run(story())
