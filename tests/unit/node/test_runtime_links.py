"""Goal: one link for each pair of nodes, found again when lost, bounded, and nobody else gets in. Method: nodes in one
event loop, real connections on loopback; conditions are waited for."""
import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.bus.link import LinkIdentity, Record
from angarium.core.errors import ConfigError
from angarium.runtime.links import Links, LinkSettings, LinkUsers
from tests.process.process_broker import WAIT_S, free_port

SECRET = b"0123456789abcdef"
QUICK = LinkSettings(redial_s_min=0.01, redial_s_max=0.05, heartbeat_s=0.02)  # and patient: a machine may be busy


class Node:
    def __init__(self, number: int, settings: LinkSettings = QUICK, secret: bytes = SECRET) -> None:
        self.me = bytes(15) + bytes([number])
        self.happened: list[tuple[Any, ...]] = []
        self.records: list[tuple[bytes, Record]] = []
        identity = LinkIdentity(secret, 7, f"node-{number}", self.me, 9_000 + number)
        users = LinkUsers(
            record=lambda who, record: self.records.append((who, record)),
            found=lambda who, name, host, port: self.happened.append(("found", who, name, host, port)),
            lost=lambda who, reason: self.happened.append(("lost", who)),
            blocked=lambda who, blocked: self.happened.append(("blocked", who, blocked)),
            refused=lambda reason: self.happened.append(("refused", reason)),
        )
        self.links = Links(settings, identity, users)
        self.port = 0

    def count(self, what: str) -> int:
        return sum(happened[0] == what for happened in self.happened)


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    for node in nodes:  # at ports that nobody else is given meanwhile: some tests come back to one
        node.port = await node.links.start("127.0.0.1", free_port())
    try:
        yield
    finally:
        for node in nodes:
            await node.links.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 (a condition of several nodes)
            await asyncio.sleep(0.005)


def test_neighbours_find_each_other_by_name_and_say_what_they_like() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            await until(lambda: one.links.is_linked(two.me) and two.links.is_linked(one.me))
            assert one.happened == [("found", two.me, "node-2", "127.0.0.1", 9_002)]
            assert two.happened == [("found", one.me, "node-1", "127.0.0.1", 9_001)]
            for number in range(50):
                assert two.links.send(one.me, 20, b"%d" % number, bytes(number * 1_000))
            await until(lambda: len(one.records) == 50)
            assert one.records == [(two.me, Record(20, b"%d" % n, bytes(n * 1_000))) for n in range(50)]
            assert not one.links.send(b"nobody", 20, b"", b"")

    asyncio.run(story())


def test_if_both_dial_one_link_stays() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            two.links.dial("127.0.0.1", one.port)
            await until(lambda: one.links.is_linked(two.me) and two.links.is_linked(one.me))
            await asyncio.sleep(0.2)  # time for a second one to come and go
            for node in (one, two):
                assert node.count("found") - node.count("lost") == 1
                assert node.count("found") <= 3, "they do not go on replacing each other"
            assert one.links.send(two.me, 20, b"here", b"")
            await until(lambda: two.records == [(one.me, Record(20, b"here", b""))])

    asyncio.run(story())


def test_who_dials_beside_a_link_waits_until_it_is_lost() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one, two):
            two.links.dial("127.0.0.1", one.port)
            await until(lambda: one.links.is_linked(two.me) and two.links.is_linked(one.me))
            one.links.dial("127.0.0.1", two.port)
            for number in range(100):  # time for a second one to come and go, and come again
                assert one.links.send(two.me, 20, b"%d" % number) and two.links.send(one.me, 20, b"%d" % number)
                await asyncio.sleep(0.002)
            assert one.count("found") == two.count("found") == 1 and one.count("lost") == two.count("lost") == 0
            await until(lambda: len(one.records) == len(two.records) == 100)
            two.links.hang_up("127.0.0.1", one.port)
            one.links.drop(two.me)
            await until(lambda: one.count("found") == two.count("found") == 2)
            assert one.links._proven[two.me].dialer, "one has not forgotten that it wants a link"

    asyncio.run(story())


def test_a_node_at_two_addresses_has_one_link() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            one.links.dial("localhost", two.port)
            await until(lambda: one.links.is_linked(two.me) and two.links.is_linked(one.me))
            await asyncio.sleep(0.2)  # time for a second one to come and go
            assert one.count("found") == two.count("found") == 1 and one.count("lost") == two.count("lost") == 0

    asyncio.run(story())


def test_a_node_that_comes_back_is_found_again_under_its_new_incarnation() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one):
            async with running(two):
                one.links.dial("127.0.0.1", two.port)
                await until(lambda: one.links.is_linked(two.me))
            await until(lambda: one.happened[-1] == ("lost", two.me))
            await asyncio.sleep(0.1)  # attempts in vain
            again = Node(3)
            again.port = await again.links.start("127.0.0.1", two.port)
            await until(lambda: one.links.is_linked(again.me))
            await again.links.close()

    asyncio.run(story())


def test_who_is_hung_up_on_is_dialled_no_more_and_keeps_its_link() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2)
        async with running(one):
            async with running(two):
                one.links.dial("127.0.0.1", two.port)
                await until(lambda: one.links.is_linked(two.me))
                one.links.hang_up("127.0.0.1", two.port)
                one.links.dial("127.0.0.1", two.port)  # it was out of the view for a moment
                await asyncio.sleep(0.1)
                assert one.happened == [("found", two.me, "node-2", "127.0.0.1", 9_002)], "there is no second link"
                one.links.hang_up("127.0.0.1", two.port)
            await until(lambda: not one.links._dialling)
            again = Node(3)
            again.port = await again.links.start("127.0.0.1", two.port)
            await asyncio.sleep(0.2)
            assert not one.links.is_linked(again.me)
            one.links.dial("127.0.0.1", two.port)
            await until(lambda: one.links.is_linked(again.me))
            await again.links.close()

    asyncio.run(story())


def test_one_that_reads_nothing_blocks_and_then_is_refused() -> None:
    async def story() -> None:
        small = LinkSettings(output_bytes_low=1 << 16, output_bytes_high=1 << 18, output_bytes_max=1 << 20)
        one, two = Node(1, small), Node(2)
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            await until(lambda: two.links.is_linked(one.me) and one.links.is_linked(two.me))
            connection = two.links._proven[one.me]
            assert connection._transport is not None
            connection._transport.pause_reading()
            sent = 0
            while one.links.send(two.me, 20, b"", bytes(100_000)):
                sent += 1
                await asyncio.sleep(0)
                assert sent < 1_000
            assert ("blocked", two.me, True) in one.happened
            connection._transport.resume_reading()
            await until(lambda: ("blocked", two.me, False) in one.happened)
            await until(lambda: len(two.records) == sent)

    asyncio.run(story())


def test_what_is_sent_in_one_turn_of_the_loop_is_bounded_too() -> None:
    async def story() -> None:
        one, two = Node(1, LinkSettings(output_bytes_max=5 << 20)), Node(2)
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            await until(lambda: two.links.is_linked(one.me) and one.links.is_linked(two.me))
            taken = [one.links.send(two.me, 20, b"", bytes(1 << 20)) for _ in range(10)]
            assert taken == [True] * 5 + [False] * 5 or taken == [True] * 6 + [False] * 4
            await until(lambda: len(two.records) == sum(taken))

    asyncio.run(story())


def test_silence_is_noticed() -> None:
    async def story() -> None:
        one, two = Node(1), Node(2, replace(QUICK, silence_s_max=0.5))
        async with running(one, two):
            one.links.dial("127.0.0.1", two.port)
            await until(lambda: two.links.is_linked(one.me) and one.links.is_linked(two.me))
            silent = one.links._proven[two.me]
            assert silent._timer is not None
            silent._timer.cancel()  # says nothing any more, and notices nothing
            await until(lambda: two.count("lost") >= 1)
            await until(lambda: two.count("found") > two.count("lost"))

    asyncio.run(story())


def test_whoever_does_not_prove_himself_is_out_in_time() -> None:
    async def story() -> None:
        node = Node(1, LinkSettings(greeting_s_max=0.1, unproven_max=2))
        stranger = Node(2, secret=b"not the secret at all")
        async with running(node, stranger):
            silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(5)]
            for connection in silent:
                connection.setblocking(False)
            await until(lambda: not node.links._unproven and node.count("found") == 0)
            loop = asyncio.get_running_loop()
            for connection in silent:
                greeting = await loop.sock_recv(connection, 1_000)
                assert greeting == b"" or greeting.startswith(b"ANGL")
                connection.close()
            stranger.links.dial("127.0.0.1", node.port)
            await until(lambda: node.count("refused") >= 1)
            assert not node.links.is_linked(stranger.me) and not stranger.links.is_linked(node.me)

    asyncio.run(story())


def test_a_node_does_not_link_to_itself() -> None:
    async def story() -> None:
        node = Node(1)
        async with running(node):
            node.links.dial("127.0.0.1", node.port)
            await asyncio.sleep(0.1)
            assert not node.links.is_linked(node.me) and node.count("found") == 0

    asyncio.run(story())


def test_limits_have_to_ascend() -> None:
    with pytest.raises(ConfigError, match="have to ascend"):
        LinkSettings(output_bytes_low=1 << 30)
