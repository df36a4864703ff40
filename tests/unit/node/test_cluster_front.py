"""The front of a node sends into a channel only what the channel takes; the rest waits, in order."""
from random import Random
from typing import cast

import pytest

from angarium.core.errors import MessageTooLong
from angarium.core.groups.records import Placement
from angarium.core.ids import ANYBODY
from angarium.core.session.destination_service import Posted
from angarium.core.session.events import ToBus
from angarium.core.wire import frames
from angarium.core.wire.envelope import open_envelope
from angarium.node.cluster.front import FrontEnd, FrontWays
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.node import ClusterNode
from angarium.node.cluster.services import OnChannel
from angarium.node.config import NodeConfig
from angarium.node.identity import take_up_identity
from angarium.sim.clock import Clock
from angarium.sim.loop import SimLoop

GROUP, NODE, SESSION = 1, b"n" * 16, b"s" * 16


class Channel:
    """Takes so many messages and no more."""

    def __init__(self) -> None:
        self.room = 2
        self.bytes_max = 10_000
        self.begun = 0  # how often sessions began anew
        self.sent: list[int] = []  # destinations of the envelopes
        self.clock = Clock(Random(1))
        self.loop = SimLoop(self.clock, "front", starts_at=100.0)  # type: ignore[abstract]
        self.loop.call_soon(self._begin)
        self.clock.run_until(1.0)

    def _begin(self) -> None:
        identity = take_up_identity({}, site=0, wall_ms=1_700_000_000_000, chance=1)
        ways = FrontWays(
            multicast=self._multicast, is_blocked=lambda group: self.room <= len(self.sent), backups=lambda group: [],
            ask_backup=lambda node, message: False, ask_node=lambda session, request: None,
        )  # fmt: skip
        self.front = FrontEnd(NodeConfig(), identity, "front", ways, Machinery())
        self.front.placed(Placement(1, (GROUP,), {}))
        self.front.serving(NODE, GROUP, 1)

    def _multicast(self, group: int, parts: list[bytes]) -> None:
        message = b"".join(parts)
        if message[0] == OnChannel.ANEW:
            self.begun += 1
            return
        if len(message) > self.bytes_max:
            raise MessageTooLong(f"message of {len(message)} bytes")
        assert len(self.sent) < self.room, "the channel has no room"
        self.sent.append(open_envelope(message[1:]).destination)

    def post(self, *destinations: int) -> None:
        for destination in destinations:
            self.front._send(Posted(GROUP, ToBus(SESSION, destination, frames.SessionEnded(True))), 0)


@pytest.mark.parametrize("blocked", [False, True])
def test_what_is_passed_on_and_too_long_is_dropped_and_stops_nobody(blocked: bool) -> None:
    channel = Channel()
    channel.front.channel_blocked(GROUP, blocked)
    rows = frames.MoveRows(GROUP, 2, "q", 1, 1, 0, 3, b"", False)
    channel.front._send(Posted(GROUP, ToBus(ANYBODY, 7, rows, b"x" * 10_000)), 0)
    channel.post(1)
    channel.front.channel_blocked(GROUP, False)
    assert channel.sent == [1]
    with pytest.raises(MessageTooLong):  # nothing of a client is as long: if it is, somebody is to notice
        channel.front._send(Posted(GROUP, ToBus(SESSION, 7, frames.Publish(1), b"x" * 10_000)), 0)


def test_an_order_that_is_too_long_for_the_channel_is_asked_for_over_a_link() -> None:
    class Node:
        def _multicast(self, group: int, parts: list[bytes]) -> None:
            raise MessageTooLong("message of 9,000,000 bytes")

    ClusterNode._multicast_order(cast(ClusterNode, Node()), GROUP, [b"order"])


def test_what_has_no_room_waits_though_nobody_has_said_so_yet() -> None:
    """Within one turn of the loop the bus has no chance to tell."""
    channel = Channel()
    channel.post(1, 2, 3, 4)
    assert channel.sent == [1, 2]
    channel.room = 10
    channel.post(5)
    assert channel.sent == [1, 2]
    channel.clock.run_until(2.0)
    assert channel.sent == [1, 2, 3, 4, 5]


def test_a_channel_that_has_room_again_is_not_filled_beyond_it() -> None:
    channel = Channel()
    channel.front.channel_blocked(GROUP, True)
    channel.post(1, 2, 3, 4, 5)
    channel.front.channel_blocked(GROUP, False)
    assert channel.sent == [1, 2]
    channel.room = 3
    channel.front.channel_blocked(GROUP, False)
    assert channel.sent == [1, 2, 3]
    channel.room = 10
    channel.clock.run_until(2.0)
    assert channel.sent == [1, 2, 3, 4, 5]


def test_another_message_manager_gets_nothing_of_what_waited() -> None:
    channel = Channel()
    channel.post(1, 2, 3)
    channel.front.serving(b"m" * 16, GROUP, 2)
    channel.room = 10
    channel.clock.run_until(2.0)
    channel.post(4)
    assert channel.sent == [1, 2, 4]


def test_sessions_begin_anew_when_what_was_said_may_be_lost() -> None:
    """Also if the same message manager serves as before: it has missed something of our stream, and we do not know. It
    is told first: what it was told before may still be on its way."""
    channel = Channel()
    assert channel.begun == 1
    channel.front.serving(NODE, GROUP, 1)
    assert channel.begun == 1
    channel.front.serving(NODE, GROUP, 1, is_anew=True)
    assert channel.begun == 2
    channel.front.serving(b"m" * 16, GROUP, 2)
    channel.front.serving(NODE, GROUP, 1, is_anew=True)
    assert channel.begun == 3, "an earlier epoch is over"


def test_a_request_to_a_group_without_a_message_manager_is_refused_and_not_kept_for_ever() -> None:
    channel = Channel()
    told: list[frames.Frame] = []
    channel.front._tell = lambda session, frame, payload: told.append(frame)  # type: ignore[method-assign]
    channel.front.lost(NODE)
    channel.front._send(Posted(GROUP, ToBus(SESSION, 0, frames.Request(7, "destination.list", {}))), 0)
    channel.clock.run_until(4.0)
    assert told == [], "a new one is found within a second"
    channel.clock.run_until(8.0)
    assert [(frame.number, frame.code) for frame in told if isinstance(frame, frames.Reply)] == [(7, "no-primary")]
