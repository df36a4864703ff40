"""Goal: a link that is in use stays, whoever dials again; two that dial at once end with one link; one that has lost
its link comes back at once, whatever the other side still believes. Method: two nodes in one event loop; of each
connection what is said arrives in order, of several connections in an order that a seed draws; one end of a connection
can be cut without the other's knowing. Replay one: pytest -k 'ends_in_one_link[17]'."""
import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from angarium.core.bus.link import LinkIdentity
from angarium.runtime.links import LinkConnection, Links, LinkSettings, LinkUsers

STILL = LinkSettings(heartbeat_s=60.0, silence_s_max=600.0, greeting_s_max=60.0)  # nothing happens but what a test does
LOWER, HIGHER = 1, 2


class End:
    """One end of a connection, as a transport."""

    def __init__(self, node: "Node", *, dialer: bool) -> None:
        self.connection = LinkConnection(node.links, dialer=dialer)
        self.node = node
        self.peer: End
        self.input: deque[bytes | None] = deque()  # on its way here; None: the end of it
        self.is_closed = False
        self.is_lost = False

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        if not self.is_closed and not self.peer.is_lost:
            self.peer.input.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.peer.input.append(None)
            asyncio.get_running_loop().call_soon(self.lost)

    def lost(self) -> None:
        """This end is gone; the other does not hear of it by this."""
        if not self.is_lost:
            self.is_closed = self.is_lost = True
            self.connection.connection_lost(None)

    def receive(self) -> None:
        data = self.input.popleft()
        if data is None:
            self.lost()
        elif not self.is_closed:
            self.connection.get_buffer(-1)[: len(data)] = data
            self.connection.buffer_updated(len(data))


class Node:
    def __init__(self, number: int) -> None:
        self.me = bytes(15) + bytes([number])
        self.told: list[str] = []
        self.records: list[bytes] = []
        identity = LinkIdentity(b"0123456789abcdef", 7, f"node-{number}", self.me, 9_000 + number)
        users = LinkUsers(
            record=lambda who, record: self.records.append(record.message),
            found=lambda who, name, host, port: self.told.append("found"),
            lost=lambda who, reason: self.told.append("lost"),
            blocked=lambda who, blocked: None,
            refused=lambda reason: self.told.append(reason),
        )  # fmt: skip
        self.links = Links(STILL, identity, users)

    def link_to(self, other: "Node") -> LinkConnection | None:
        return self.links._proven.get(other.me)


class Pair:
    """Two nodes and all connections that there ever were between them."""

    def __init__(self, one: int = LOWER, two: int = HIGHER, chance: Random | None = None) -> None:
        self.one, self.two = Node(one), Node(two)
        self.ends: list[End] = []
        self._chance = chance or Random(0)

    def dial(self, dialer: Node) -> End:
        listener = self.two if dialer is self.one else self.one
        end, other = End(dialer, dialer=True), End(listener, dialer=False)
        end.peer, other.peer = other, end
        self.ends += [end, other]
        for each in (end, other):
            each.connection.connection_made(cast(asyncio.Transport, each))
        return end

    def end_of(self, node: Node) -> End:
        link = node.link_to(self.two if node is self.one else self.one)
        return next(end for end in self.ends if end.connection is link)

    async def step(self) -> bool:
        """Something arrives somewhere; False if nothing is on its way."""
        await asyncio.sleep(0)  # what was written in this turn leaves
        await asyncio.sleep(0)
        waiting = [end for end in self.ends if end.input]
        if waiting:
            self._chance.choice(waiting).receive()
        return bool(waiting)

    async def settle(self) -> None:
        while await self.step():
            pass

    def is_one_link(self) -> bool:
        one, two = self.one.link_to(self.two), self.two.link_to(self.one)
        if one is None or two is None or self.end_of(self.one).peer is not self.end_of(self.two):
            return False
        return sum(not end.is_closed for end in self.ends) == 2

    async def linked(self, dialer: Node) -> None:
        self.dial(dialer)
        await self.settle()
        assert self.is_one_link() and self.one.told == self.two.told == ["found"]


@pytest.fixture(params=[(LOWER, HIGHER), (HIGHER, LOWER)], ids=("lower first", "higher first"))
def numbers(request: pytest.FixtureRequest) -> tuple[int, int]:
    return cast(tuple[int, int], request.param)


@pytest.mark.parametrize("again", ("by the other", "by the same"))
def test_a_second_dial_leaves_the_link_that_is_in_use(numbers: tuple[int, int], again: str) -> None:
    async def story() -> None:
        pair = Pair(*numbers)
        one, two = pair.one, pair.two
        await pair.linked(one)
        first = one.link_to(two)
        for number in range(20):
            assert one.links.send(two.me, 20, b"%d" % number) and two.links.send(one.me, 20, b"%d" % number)
        second = pair.dial(two if again == "by the other" else one)
        await pair.settle()
        assert one.link_to(two) is first and pair.is_one_link()
        assert second.is_lost and second.connection.gave_way_to == second.peer.node.me, "and it is waited for"
        assert one.told == two.told == ["found"], "nobody was told of anything"
        assert one.records == two.records == [b"%d" % number for number in range(20)], "nothing is lost"

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(200))
def test_dialling_at_once_ends_in_one_link(seed: int) -> None:
    async def story() -> None:
        chance = Random(seed)
        pair = Pair(chance=chance)
        dials = [chance.choice((pair.one, pair.two)) for _ in range(chance.randint(0, 2))] + [pair.one, pair.two]
        chance.shuffle(dials)
        for dialer in dials:
            pair.dial(dialer)
            for _ in range(chance.choice((0, 0, 1, 3, 6))):
                await pair.step()
        await pair.settle()
        assert pair.is_one_link()
        for node in (pair.one, pair.two):
            assert node.told.count("found") - node.told.count("lost") == 1
            assert len(node.told) <= 3, "they do not go on replacing each other"

    asyncio.run(story())


@pytest.mark.parametrize("by", ("one", "two"))
@pytest.mark.parametrize("loser", ("one", "two"))
def test_one_that_has_lost_its_link_comes_back_at_once(numbers: tuple[int, int], by: str, loser: str) -> None:
    """The other still believes in the old one: nothing has come that tells it otherwise."""

    async def story() -> None:
        pair = Pair(*numbers)
        await pair.linked(getattr(pair, by))
        back = getattr(pair, loser)
        other = pair.two if back is pair.one else pair.one
        pair.end_of(back).lost()
        assert back.told == ["found", "lost"] and other.told == ["found"]
        pair.dial(back)
        await pair.settle()
        assert pair.is_one_link() and back.told == ["found", "lost", "found"] == other.told
        assert other.links.send(back.me, 20, b"hello") and back.links.send(other.me, 20, b"hello")
        await pair.settle()
        assert back.records == other.records == [b"hello"]

    asyncio.run(story())


def test_a_link_that_is_lost_while_another_is_dialled_is_replaced_by_it() -> None:
    async def story() -> None:
        pair = Pair()
        await pair.linked(pair.one)
        new = pair.dial(pair.two)
        new.receive()  # the greeting: there is a link
        pair.end_of(pair.two).lost()
        await pair.settle()
        assert pair.end_of(pair.two) is new and pair.is_one_link()

    asyncio.run(story())


def test_who_only_greets_in_the_name_of_a_node_makes_nobody_give_way() -> None:
    """That would keep us from ever dialling who really lives at that address."""

    async def story() -> None:
        pair = Pair()
        await pair.linked(pair.one)
        end = pair.dial(pair.two)
        end.receive()  # the greeting, and no proof ever
        assert not end.is_closed, "it may yet come"
        end.connection.close("no greeting in time")
        await pair.settle()
        assert not end.connection.gave_way_to and pair.is_one_link()

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(200))
def test_whatever_was_cut_the_next_dials_end_in_one_link(seed: int) -> None:
    """Dials and cuts first, of which only one side knows; then both notice what is dead, and dial."""

    async def story() -> None:
        chance = Random(seed)
        pair = Pair(chance=chance)
        for _ in range(chance.randint(3, 12)):
            node = chance.choice((pair.one, pair.two))
            actions: list[Callable[[], object]] = [lambda node=node: pair.dial(node)]  # type: ignore[misc]
            actions += [end.lost for end in pair.ends if not end.is_lost]
            chance.choice(actions)()
            for _ in range(chance.randint(0, 8)):
                await pair.step()
        await pair.settle()
        for end in pair.ends:
            if end.peer.is_lost and not end.is_lost:
                end.lost()  # by silence
        await pair.settle()
        dialers = [pair.one, pair.two]
        chance.shuffle(dialers)
        for dialer in dialers:
            pair.dial(dialer)
        await pair.settle()
        assert pair.is_one_link()
        before = list(pair.one.told), list(pair.two.told)
        pair.dial(dialers[0])
        pair.dial(dialers[1])
        await pair.settle()
        assert pair.is_one_link() and (pair.one.told, pair.two.told) == before

    asyncio.run(story())
