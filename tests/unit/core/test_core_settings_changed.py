"""Goal: settings that are changed while machines run count from then on, for what is open already as well.
Method: a node of fakes; each setting is reached, raised, and reached again; or the reverse."""
from dataclasses import replace

import pytest

from angarium.core.destination import events as mm
from angarium.core.destination.events import DestinationSettings
from angarium.core.session import events as cm
from angarium.core.session.events import SessionSettings
from angarium.core.stream.events import StreamSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, PatternSyntax
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import Node
from tests.unit.core.test_core_node_limits import signals

QUEUE, TOPIC = DestinationKind.QUEUE, DestinationKind.TOPIC


def change(world: World, **changed: object) -> None:
    world.settings = replace(world.settings, **changed)  # type: ignore[arg-type]
    world.tell(mm.SettingsChanged(world.settings, StreamSettings()))


# -- client manager ------------------------------------------------------------------------------------------


def test_connections_max() -> None:
    node = Node(SessionSettings(connections_max=1))
    node.connect()
    assert node.connect(greet=False).failure == "too-many-connections"
    node.tell(cm.SettingsChanged(SessionSettings(connections_max=2)))
    assert node.connect().failure == ""
    assert node.connect(greet=False).failure == "too-many-connections"


def test_sessions_max_and_links_max_of_what_is_open() -> None:
    node = Node()
    client = node.connect_with_session()
    node.tell(cm.SettingsChanged(SessionSettings(sessions_max=2, links_max=1)))
    client.open_session(session=2)
    client.open_producer("q")
    client.send(frames.ProducerOpen(2, "q", QUEUE))
    assert client.failure == "too-many-links"
    other = node.connect_with_session()
    other.open_session(session=2)
    other.open_session(session=3)
    assert other.failure == "too-many-sessions"


# -- message manager -----------------------------------------------------------------------------------------


def test_destinations_max() -> None:
    world = World()
    world.locate("a")
    change(world, destinations_max=1)
    assert world.request("destination.create", name="b").code == "too-many-destinations"
    change(world, destinations_max=2)
    assert world.request("destination.create", name="b").code == ""


def test_consumers_max_and_selector_characters_max_of_a_destination_that_is_there() -> None:
    world = World()
    queue = world.locate("q")
    world.consumer(queue)
    change(world, consumers_max=1)
    session = world.session()
    world.frame(session, queue, frames.ConsumerOpen(1, "q", QUEUE))
    assert world.last(session, frames.ConsumerClosed).code == "too-many-consumers"
    change(world, consumers_max=10, selector_characters_max=5)
    world.frame(session, queue, frames.ConsumerOpen(2, "q", QUEUE, selector="a = 1 OR b = 2"))
    assert world.last(session, frames.ConsumerClosed).code == "selector-too-long"


def test_watches_max_and_temporaries_max() -> None:
    world = World()
    change(world, watches_max=1, temporaries_max=1)
    session = world.session()
    for number in (1, 2):
        world.frame(session, 0, frames.Watch(number, "a.*", PatternSyntax.GLOB, TOPIC))
    assert world.last(session, frames.WatchClosed).code == "too-many-watches"
    for number in (1, 2):
        made = {"name": f"_TEMP.{number}", "temporary": True}
        world.frame(session, 0, frames.Request(number, "destination.create", made, b"c" * 16))
    assert [reply.code for reply in world.received(session, frames.Reply)] == ["", "too-many-destinations"]


@pytest.mark.parametrize("grace_s", [0.0, 50.0])
def test_resume_grace_s_of_consumers_that_are_there(grace_s: float) -> None:
    world = World(DestinationSettings(resume_grace_s=5.0))
    queue = world.queue_with(1)
    held = world.consumer(queue, credit=10)
    assert len(held.bodies) == 1
    change(world, resume_grace_s=grace_s)
    other = world.consumer(queue, credit=10)
    world.end(held.session, closed=False)
    world.advance(1.0)
    assert len(other.bodies) == (1 if grace_s == 0.0 else 0)
    world.advance(60.0)
    assert len(other.bodies) == 1


def test_limits_of_the_node_come_count_and_go() -> None:
    world = World()
    queue = world.queue_with(6)
    producer = world.producer(queue)
    change(world, node_messages_max=5)
    assert signals(producer) == ["Block"], "what was there before is counted"
    change(world, node_messages_max=50)
    assert signals(producer) == ["Block", "Unblock"]
    change(world, node_bytes_max=1)
    assert signals(producer) == ["Block", "Unblock", "Block"]
    change(world, node_messages_max=0, node_bytes_max=0)
    assert signals(producer) == ["Block", "Unblock"] * 2
    assert [report.code for report in world.reports] == ["node-full", "node-not-full"] * 2


def test_read_bytes_max() -> None:
    world = World()
    queue = world.queue_with(1)
    change(world, read_bytes_max=77)
    world.auto = False
    world.consumer(queue, credit=10)
    while world.complete_write():
        pass
    (read,) = world.reads
    assert isinstance(read, mm.Read) and read.bytes_max == 77


def test_limits_of_streams() -> None:
    world = World()
    queue = world.locate("q")
    world.tell(mm.SettingsChanged(world.settings, StreamSettings(open_max=1)))
    session = world.session()
    for number in (1, 2):
        opening = frames.StreamOpen(number, "q", QUEUE, identity=bytes([number]) * 16)
        world.frame(session, queue, opening)
    assert world.last(session, frames.StreamClosed).code == "too-many-streams"
