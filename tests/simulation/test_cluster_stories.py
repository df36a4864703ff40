"""What has gone wrong in whole clusters, told step by step: real nodes in virtual time, quiet but for what it says."""
from dataclasses import replace
from functools import partial

import pytest

from angarium.core.destination import attendance
from angarium.core.session.client_manager import ClientManager
from angarium.node.cluster.replica import ReplicaHost
from angarium.node.cluster.services import OnChannel
from angarium.sim.clusters.node import CLIENT_PORT, Machine
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.wires import AirSettings, Wires
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.messages import Violation
from angarium.sim.sessions import SimConsumer, SimProducer
from angarium.sim.world import draw_settings
from tests.simulation.stories import consumer_in, link_of, producer_in, publish, settle_on_arrival

ONE_COPY = Shape({"a": ("mm1",)}, ("cm1", "cm2"), ("mm1",))


def quiet_cluster(shape: Shape = ONE_COPY) -> ClusterWorld:
    world = ClusterWorld(1, replace(draw_settings(1), faults=(), grace_s=1.0), shape=shape)
    world.start()
    return world


def wires_of(world: ClusterWorld) -> Wires:
    """Between clients and nodes."""
    assert isinstance(world.network, Wires)
    return world.network


def front_of(world: ClusterWorld, consumer: SimConsumer) -> Machine:
    _, host = wires_of(world).hosts(link_of(consumer))
    return next(machine for machine in world.machines.values() if machine.host == host)


def attended_by(world: ClusterWorld, consumer: SimConsumer) -> bytes | None:
    node = world.machines["mm1"].node
    assert node is not None
    return node.replicas["a"]._attendance.client_manager_of(consumer.session.identity)


def move_away_from_one_that_stands_still(world: ClusterWorld) -> SimConsumer:
    """Its client manager still has to read that the session opens something; then it goes on at another."""
    consumer = consumer_in(world, "mover")
    settle_on_arrival(consumer)
    left = front_of(world, consumer)
    left.pause(0.9)  # not long enough to be missed
    consumer.session.consume("other")
    world.run_for(0.05)
    link_of(consumer).cut("cut", client_after_s=0.0, broker_after_s=0.3)
    wires_of(world).unbind(left.host, CLIENT_PORT)  # it does not come back there
    assert left.node is not None and left.loop is not None
    old = left.node.identity.incarnation
    world.run_until(lambda: attended_by(world, consumer) not in (None, old))
    world.run_for(0.05)
    assert left.loop.is_paused
    world.run_for(3.0)
    return consumer


def test_a_client_manager_that_was_left_does_not_get_the_session_back() -> None:
    world = quiet_cluster()
    consumer = move_away_from_one_that_stands_still(world)
    publish(world, producer_in(world), b"for who has moved")
    world.run_until(lambda: len(consumer.received) == 1)


def test_that_story_notices_when_turns_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientManager, "turn_of", lambda manager, session: 0)
    world = quiet_cluster()
    consumer = move_away_from_one_that_stands_still(world)
    publish(world, producer_in(world), b"for who has moved")
    with pytest.raises(Violation, match="in time"):
        world.run_until(lambda: len(consumer.received) == 1)


FROM_CHANNEL = ReplicaHost.from_channel


def without_beginnings(host: ReplicaHost, node: str, incarnation: bytes, number: int, message: bytes) -> None:
    if message[0] != OnChannel.ANEW:
        FROM_CHANNEL(host, node, incarnation, number, message)


def open_while_the_link_breaks(world: ClusterWorld) -> SimConsumer:
    """What opens a consumer is on its way over the bus while the link breaks, and comes after it was missed."""
    world.air.settings = AirSettings(latency_s_min=0.2, latency_s_max=0.2)
    consumer = world.client("late").open_session().consume("orders")
    world.run_until(lambda: "orders" in world.ledger.messages.by_name)  # it is located
    world.run_for(0.05)
    front = front_of(world, consumer)
    for link in list(world.wires.links.values()):
        if {front.host, world.machines["mm1"].host} == set(world.wires.hosts(link)):
            world.wires.cut(link, "cut")
    world.run_for(3.0)
    return consumer


def test_what_was_said_before_a_link_broke_is_void() -> None:
    """Fail-over in trouble, seed 5: it was open already when it was opened again, and refused."""
    world = quiet_cluster()
    consumer = open_while_the_link_breaks(world)
    assert consumer.is_open and not consumer.is_ended
    publish(world, producer_in(world), b"for whom it may concern")
    world.run_until(lambda: len(consumer.received) == 1)


def test_that_story_notices_when_nothing_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaHost, "from_channel", without_beginnings)
    monkeypatch.setattr(attendance, "MISSED_MAX", 0)
    with pytest.raises(Violation, match="open already"):
        open_while_the_link_breaks(quiet_cluster())


@pytest.mark.parametrize("is_stopping", [False, True], ids=["before it stops", "while it stops"])
@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01])
def test_a_node_that_becomes_primary_as_it_stops_does_not_read_a_closed_store(
    delay_s: float, is_stopping: bool
) -> None:
    """Whole clusters, seed 700081: the others had left before, and loading found the store closed."""
    world = quiet_cluster()
    publish(world, producer_in(world), b"something to load")
    machine = world.machines["mm1"]
    assert machine.node is not None
    host = machine.node.replicas["a"]
    machine.must_run = False
    machine.stop()
    world.run_until(lambda: host._is_stopping if is_stopping else host.manager is not None)
    world.run_for(delay_s)
    host._start(host.started_epoch + 1)
    world.run_until(lambda: machine.node is None)


def miss_one_that_lives(world: ClusterWorld) -> SimProducer:
    """The message manager's node has a client manager for gone, which goes on; then it is heard again."""
    producer = producer_in(world)
    node, loop = world.machines["mm1"].node, world.machines["mm1"].loop
    assert node is not None and loop is not None
    host = node.replicas["a"]
    client_manager = host._attendance.client_manager_of(producer.session.identity)
    assert client_manager is not None
    producer.publish([b"on its way"])
    loop.call_soon(host.client_manager_gone, client_manager)
    world.run_for(0.1)
    loop.call_soon(partial(node.answering.tell_serving, client_manager, host, is_anew=True))
    return producer


def test_what_is_on_its_way_from_a_client_manager_that_was_missed_is_void() -> None:
    """One-way trouble, seed 4: what was published on a producer that had been ended, ended it at the client."""
    world = quiet_cluster()
    producer = miss_one_that_lives(world)
    world.run_until(lambda: producer.unconfirmed == 0)


def test_that_story_notices_when_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MISSED_MAX", 0)
    with pytest.raises(Violation, match="is not open"):
        miss_one_that_lives(quiet_cluster())


@pytest.mark.parametrize("step_ms", (-3_600_000.0, 3_600_000.0))
def test_a_primary_goes_by_the_wall_clock_also_after_somebody_has_set_it(step_ms: float) -> None:
    world = quiet_cluster()
    publish(world, producer_in(world), b"x")
    machine = world.machines["mm1"]
    assert machine.node is not None and machine.loop is not None
    replica, loop = machine.node.replicas["a"], machine.loop
    assert replica.manager is not None
    (state,) = [destination.state for destination in replica.manager.destinations.values()]
    before_ms = state.wall_ms(loop.time())
    began = world.clock.now
    machine.set_clock(step_ms)
    world.run_for(6.0)
    passed_ms = (world.clock.now - began) * 1000
    assert state.wall_ms(loop.time()) == pytest.approx(before_ms + step_ms + passed_ms, abs=100)
    publish(world, producer_in(world), b"y")
    replica._stop_manager("the story ends")  # nobody looks for it any more
    world.run_for(12.0)
