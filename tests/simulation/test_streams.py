"""Goal: through crashes, cuts, full disks and slow links every stream that was published arrives as it was sent, and
nothing is left of any of them in the end.
Method: senders and receivers that know the hash of each stream, faults of the kinds that the seed draws, then peace.
Replay one: pytest -k 'trouble[17]'."""
from dataclasses import replace

import pytest

from angarium.core.destination.administration import describe
from angarium.sim.checkers import left_in_memory, left_on_disk
from angarium.sim.faults import Faults
from angarium.sim.messages import Violation
from angarium.sim.streaming import StreamReceiver, StreamSender
from angarium.sim.world import World, WorldSettings, draw_settings
from tests.simulation.stories import quiet_world

SEEDS = 60


def leave_and_check(world: World, *, patience_s: float) -> None:
    """Everybody goes; the broker, restarted, remembers nothing and has no files."""
    world.run_for(patience_s)
    node = world.broker.node
    assert node is not None
    assert list(left_in_memory(node)) == []
    assert world.disk.stream_files.blocks == {}, "not only after the next start"
    world.broker.shut_down()
    world.broker.start()
    world.run_for(world.settings.grace_s + patience_s)
    node = world.broker.node
    assert node is not None
    left = [*left_in_memory(node), *left_on_disk(world.disk, producers_max=1_000)]
    assert left == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_streams_arrive_as_sent_through_any_trouble(seed: int) -> None:
    send_and_receive(seed, draw_settings(seed))


@pytest.mark.parametrize("seed", range(20))
def test_streams_go_on_when_the_message_manager_restarts_alone(seed: int) -> None:
    send_and_receive(seed, replace(draw_settings(seed), faults=("manager-crash", "manager-crash-at-a-sync")))


def send_and_receive(seed: int, settings: WorldSettings) -> None:
    world = World(seed, settings)
    senders = [StreamSender(world.client(f"s{n}"), world.chance(f"s{n}"), "files", streams=8) for n in range(2)]
    receivers = [StreamReceiver(world.client(f"r{n}"), world.chance(f"r{n}"), "files") for n in range(2)]
    faults = Faults(world, world.chance("faults"), settings.faults)
    world.clock.run_until(world.settings.trouble_s)
    faults.stop()
    for receiver in receivers:
        receiver.is_calm = True
    until = world.clock.now + 120.0
    while not (all(sender.is_done for sender in senders) and _is_drained(world)):
        world.run_for(0.25)
        if world.clock.now > until:
            raise Violation("what is published is drained", f"{[(s.streams_left, s.is_done) for s in senders]}")
    sent = [digest for sender in senders for digest in sender.sent]
    received = [digest for receiver in receivers for digest in receiver.received]
    assert set(sent) - set_aside(world) <= set(received), "nothing is missing"
    assert set(received) <= set(sent), "nothing was given up and came nevertheless"
    people: list[StreamSender | StreamReceiver] = [*senders, *receivers]
    for person in people:
        person.close()
    world.run_for(6.0)
    for person in people:
        person.client.close()
    leave_and_check(world, patience_s=world.settings.stream_keep_s + 1.0)


def set_aside(world: World) -> set[bytes]:
    """Bodies of messages that rotted on the disk, and were reported."""
    messages = world.ledger.messages
    log = messages.by_name["files"]
    lost = [log.messages[position] for position in log.set_aside]
    return {messages.by_identity[producer].bodies[sequence - 1] for producer, sequence in lost}


def _is_drained(world: World) -> bool:
    node = world.broker.node
    if node is None or not world.broker.is_idle:
        return False
    return all(describe(d)["messages"] == 0 for d in node.message_manager.destinations.values())


def test_what_a_dead_sender_left_is_deleted_in_time() -> None:
    world = quiet_world()
    sender = StreamSender(world.client("sender"), world.chance("sender"), "files", streams=5)
    world.run_until(lambda: any(len(blocks) > 1 for blocks in world.disk.stream_files.blocks.values()))
    sender.client.crash()
    receiver = StreamReceiver(world.client("receiver"), world.chance("receiver"), "files")
    receiver.is_calm = True
    world.run_for(3.0)
    receiver.close()
    world.run_for(1.0)
    receiver.client.close()
    leave_and_check(world, patience_s=world.settings.stream_keep_s + 1.0)


def test_the_same_seed_gives_the_same_streams() -> None:
    digests = set()
    for _ in range(2):
        world = World(3, draw_settings(3))
        sender = StreamSender(world.client("s"), world.chance("s"), "files", streams=6)
        StreamReceiver(world.client("r"), world.chance("r"), "files")
        Faults(world, world.chance("faults"))
        world.clock.run_until(6.0)
        digests.add((world.trace.digest(), tuple(sender.sent)))
    assert len(digests) == 1
