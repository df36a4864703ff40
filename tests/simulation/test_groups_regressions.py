"""What seeds of the simulator once found in group services, as stories.

A seed only means something to the simulator that drew from it. See also
test_groups_scenarios.py::test_a_voter_that_was_removed_while_it_was_away_hears_of_it (seed 1122).
"""
from angarium.core.groups import decisions as d
from angarium.core.groups import protocol as p
from angarium.core.groups.events import JoinGroup, Leave, LeaveGroup
from angarium.core.groups.messages import Message
from angarium.sim.groups.world import GroupsWorld, Shape
from tests.simulation.test_groups_scenarios import leader, names, quiet, wait


def copies_of(world: GroupsWorld, kind: type[Message]) -> list[tuple[str, bytes]]:
    """Of everything of this kind that is sent from now on."""
    found: list[tuple[str, bytes]] = []
    send = world.net.send

    def spy(sender: str, to: str, data: bytes, message: Message) -> None:
        if isinstance(message, kind):
            found.append((sender, data))
        send(sender, to, data, message)

    world.net.send = spy  # type: ignore[method-assign]
    return found


def test_a_late_question_of_a_start_that_is_over_does_not_put_out_the_living_one() -> None:
    """Seed 97: it replaced the later start, which then stopped."""
    world = quiet()
    copies = copies_of(world, p.JoinAsk)
    node = world.nodes["m1"]
    for _ in range(2):
        node.crash(keeps_first=False)
        wait(world, lambda: "m1" not in names(world, leader(world)), 3.0)
        node.start()
        wait(world, lambda: world.unsettled() == "", 3.0)
    first = next(data for sender, data in copies if sender == "m1")
    leader(world).receive("m1", first)
    world.clock.run_until(world.clock.now + 2)
    assert node.is_alive and world.unsettled() == ""


def test_a_late_question_to_join_a_group_that_was_left_is_undone() -> None:
    """Seed 29: the node stayed in the group, and nobody wanted it there."""
    world = quiet()
    copies = copies_of(world, p.Ask)
    node = world.nodes["m1"]
    node.tell(JoinGroup("net"))
    wait(world, lambda: "net" in world.latest().named, 2.0)
    node.tell(LeaveGroup("net"))
    wait(world, lambda: "net" not in world.latest().named, 2.0)
    leader(world).receive(*copies[0])
    wait(world, lambda: "net" in world.latest().named, 1.0)
    wait(world, lambda: "net" not in world.latest().named, 2.0)


def test_voters_that_all_leave_do_not_pass_the_leadership_round() -> None:
    """Seed 68: each leaving leader handed over to another leaving one, hundreds of times."""
    world = quiet()
    terms = len(world.ledger.leaders)
    for name in ("v0", "v1", "v2"):
        world.nodes[name].tell(Leave())
    world.clock.run_until(world.clock.now + 4)
    assert len(world.ledger.leaders) - terms <= 6
    world.settle()


def test_a_log_that_went_back_is_not_asked_as_fast_as_the_network() -> None:
    """A planted bug: a voter that lost its disk under its old id refused every entry, and got them again at once."""
    world = quiet(Shape(voters=3, members=0))
    world.nodes["v1"].request(d.SettingSet("k", b"v"))
    first = leader(world)
    raft = first.machine.raft if first.machine is not None else None
    assert raft is not None and raft.leading is not None
    world.clock.run_until(world.clock.now + 0.5)
    other = next(voter for voter in raft.log.voters if voter.node != first.name)
    sent = first.messages_sent
    for number in range(100):
        answer = p.AppendAnswer(raft.term, other.store, False, 0, world.clock.now)
        first.receive(other.node, p.encode_message(answer))
        world.clock.run_until(world.clock.now + 0.001 * (number % 2))
    assert first.messages_sent - sent < 20


def test_no_disk_is_lost_of_two_voters_also_while_they_become_two() -> None:
    """Seed 801582: the change to two was in the logs and not decided when one of them lost its disk, and nobody could
    lead again. That is as it has to be; the simulator took them for three."""
    world = quiet(Shape(voters=3, members=0))
    first = leader(world)
    kept, gone = [world.nodes[name] for name in ("v0", "v1", "v2") if name != first.name]
    assert world.may_lose_disk(kept)
    kept.request(d.VotersWanted(world.latest().voters_wanted, (first.name, kept.name)))
    raft = first.machine.raft if first.machine is not None else None
    assert raft is not None
    give_up_at = world.clock.now + 2.0
    while len(raft.log.voters) > 2 and world.clock.now < give_up_at:
        world.clock.run_until(world.clock.now + 0.0001)
    assert len(raft.log.voters) == 2 and len(world.latest().voters) == 3, "it is not decided yet"
    assert not world.may_lose_disk(kept) and not world.may_lose_disk(gone)
