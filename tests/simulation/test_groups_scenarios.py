"""Goal: what a cluster does in the situations that its people ask about. Method: one fault at a time."""
import pytest

from angarium.core.groups import decisions as d
from angarium.core.groups import protocol as p
from angarium.core.groups.events import Leave, NeighbourLost
from angarium.core.groups.messages import AdmitAsk, Message
from angarium.sim.groups.node import SimNode
from angarium.sim.groups.world import GroupsWorld, Shape

QUIET = Shape(voters=3, members=2, groups=((0, 1, 3),))


def quiet(shape: Shape = QUIET, seed: int = 1) -> GroupsWorld:
    """A cluster at rest, its groups formed."""
    world = GroupsWorld(seed, shape, has_faults=False)
    wait(world, lambda: len(world.groups()) == len(shape.groups) and not world.unsettled(), 8.0)
    return world


def leader(world: GroupsWorld) -> SimNode:
    (found,) = [node for node in world.alive() if node.machine is not None and node.machine.is_leader]
    return found


def other(world: GroupsWorld, *taken: SimNode) -> SimNode:
    return next(node for node in world.nodes.values() if node not in taken and node.keeps_log)


def names(world: GroupsWorld, node: SimNode) -> set[str]:
    assert node.machine is not None
    return {record.name for record in node.machine.state.nodes}


def wait(world: GroupsWorld, condition: object, within_s: float) -> float:
    """Until it holds; how long that took."""
    start = world.clock.now
    assert callable(condition)
    while not condition():
        assert world.clock.now - start < within_s, f"not within {within_s} s"
        world.clock.run_until(world.clock.now + 0.02)
    return world.clock.now - start


# -- nodes that go ---------------------------------------------------------------------------------------------


def test_a_dead_host_is_out_of_the_view_within_two_seconds() -> None:
    world = quiet()
    first = leader(world)
    world.nodes["m1"].crash(keeps_first=False)
    assert wait(world, lambda: "m1" not in names(world, first), 2.0) > 0.9


def test_a_dead_process_is_known_at_once() -> None:
    world = quiet()
    first, dead = leader(world), world.nodes["m1"]
    dead.crash(keeps_first=False)
    first.tell(NeighbourLost("m1", dead.incarnation, True))
    assert wait(world, lambda: "m1" not in names(world, first), 1.0) < 0.3


def test_any_node_may_tell_the_leader_of_a_dead_process() -> None:
    world = quiet()
    first, dead = leader(world), world.nodes["m1"]
    dead.crash(keeps_first=False)
    world.nodes["m0"].tell(NeighbourLost("m1", dead.incarnation, True))
    assert wait(world, lambda: "m1" not in names(world, first), 1.0) < 0.3


def test_nodes_that_die_together_are_one_change_of_the_view() -> None:
    world = quiet(Shape(voters=3, members=4))
    first = leader(world)
    views = first.listener.views
    for name in ("m0", "m1", "m2"):
        world.nodes[name].crash(keeps_first=False)
        first.tell(NeighbourLost(name, world.nodes[name].incarnation, True))
        world.clock.run_until(world.clock.now + 0.03)
    wait(world, lambda: "m0" not in names(world, first), 1.0)
    assert names(world, first).isdisjoint({"m0", "m1", "m2"}) and first.listener.views == views + 1


def test_leaving_takes_no_detection() -> None:
    world = quiet()
    first = leader(world)
    world.nodes["m1"].tell(Leave())
    assert wait(world, lambda: "m1" not in names(world, first), 0.4) < 0.2


def test_a_leader_that_leaves_hands_over_first() -> None:
    world = quiet()
    first = leader(world)
    term = max(world.ledger.leaders)
    first.tell(Leave())
    wait(world, lambda: max(world.ledger.leaders) > term, 0.5)
    world.settle()


def test_a_node_that_restarts_at_once_leaves_no_ghost() -> None:
    world = quiet()
    old = world.nodes["m1"].incarnation
    world.nodes["m1"].crash(keeps_first=False)
    world.nodes["m1"].start()
    wait(world, lambda: world.unsettled() == "", 2.0)
    records = [record for record in world.latest().nodes if record.name == "m1"]
    assert [record.incarnation for record in records] == [world.nodes["m1"].incarnation]
    assert records[0].replaced == (old,)


def test_a_node_that_only_another_voter_hears_stays() -> None:
    world = quiet()
    first = leader(world)
    member = world.nodes["m1"]
    world.net.cut |= {("m1", first.name), (first.name, "m1")}
    start = world.clock.now
    while world.clock.now < start + 6:
        world.clock.run_until(world.clock.now + 0.1)
        assert "m1" in names(world, first) or any(r.code == "nodes-gone" for r in first.reports)
    assert member.machine is not None
    assert "m1" in names(world, first)


# -- leaders ---------------------------------------------------------------------------------------------------


def test_a_dead_leader_is_replaced() -> None:
    world = quiet()
    first = leader(world)
    first.crash(keeps_first=False)
    rest = [node for node in world.nodes.values() if node is not first]
    assert wait(world, lambda: all(first.name not in names(world, node) for node in rest), 4.0) < 3.5


def test_a_killed_leader_whose_connections_are_refused_is_replaced_at_once() -> None:
    world = quiet()
    first = leader(world)
    term = max(world.ledger.leaders)
    first.crash(keeps_first=False)
    for node in world.alive():
        node.tell(NeighbourLost(first.name, first.incarnation, True))
    assert wait(world, lambda: max(world.ledger.leaders) > term, 1.5) < 0.6
    assert wait(world, lambda: all(first.name not in names(world, node) for node in world.alive()), 2.0) < 1.5


def test_a_paused_leader_that_resumes_acts_on_nothing_old() -> None:
    world = quiet()
    first = leader(world)
    term = max(world.ledger.leaders)
    first.pause(4.0)
    wait(world, lambda: max(world.ledger.leaders) > term, 3.5)
    decided = world.latest().index
    wait(world, lambda: not first.is_paused, 5.0)
    world.clock.run_until(world.clock.now + 0.1)
    assert first.machine is not None and not first.machine.is_leader
    world.settle()
    assert world.latest().index > decided


def test_leadership_is_transferred_on_request_without_a_gap() -> None:
    world = quiet()
    first = leader(world)
    second = other(world, first)
    number = world.nodes["m0"].request(p.TransferLeadership(second.name))
    assert wait(world, lambda: second.machine is not None and second.machine.is_leader, 0.5) < 0.2
    assert world.nodes["m0"].answers[number].code == ""


def test_without_a_majority_nothing_is_decided_and_nobody_storms() -> None:
    world = quiet(Shape(voters=3, members=6))
    for name in ("v1", "v2"):
        world.nodes[name].crash(keeps_first=False)
    world.clock.run_until(world.clock.now + 3)
    before, sent = world.latest().index, {node.name: node.messages_sent for node in world.nodes.values()}
    number = world.nodes["m0"].request(d.SettingSet("k", b"v"))
    world.clock.run_until(world.clock.now + 20)
    assert world.latest().index == before and number not in world.nodes["m0"].answers
    for node in world.alive():
        assert (node.messages_sent - sent[node.name]) / 20 < (12 if node.name == "v0" else 4), node.name
    world.nodes["v1"].start()
    wait(world, lambda: number in world.nodes["m0"].answers, 6.0)


def test_a_voter_that_was_cut_off_does_not_unseat_the_leader() -> None:
    world = quiet()
    first = leader(world)
    third = other(world, first)
    terms = dict(world.ledger.leaders)
    world.net.cut |= {(third.name, name) for name in world.nodes} | {(name, third.name) for name in world.nodes}
    world.clock.run_until(world.clock.now + 6)
    world.net.cut.clear()
    world.settle()
    assert world.ledger.leaders == terms


# -- disks, voters ---------------------------------------------------------------------------------------------


def test_a_voter_that_lost_its_disk_votes_only_when_it_is_taken_in_again() -> None:
    world = quiet()
    lost = other(world, leader(world))
    before = {voter.node: voter.store for voter in world.latest().voters}
    lost.crash(keeps_first=False, loses_disk=True)
    lost.start()
    assert lost.store not in before.values()
    wait(world, lambda: world.unsettled() == "", 5.0)
    after = {voter.node: voter.store for voter in world.latest().voters}
    assert after == {**before, lost.name: lost.store}


def test_the_whole_cluster_comes_back_from_a_power_cut() -> None:
    world = quiet()
    wait(world, lambda: len(world.ledger.confirmed.get("g0", ())) > 5, 5.0)
    confirmed = world.ledger.confirmed["g0"]
    for node in world.nodes.values():
        node.crash(keeps_first=False)
    for node in world.nodes.values():
        node.start()
    world.settle()
    assert world.ledger.confirmed["g0"][: len(confirmed)] == confirmed


def test_voters_are_replaced_one_by_one() -> None:
    world = quiet(Shape(voters=3, spares=1, members=1))
    number = world.nodes["m0"].request(d.VotersWanted(("v0", "v1", "v2"), ("v1", "v2", "s0")))
    wait(world, lambda: number in world.nodes["m0"].answers, 1.0)
    wait(world, lambda: world.unsettled() == "", 8.0)
    assert {voter.node for voter in world.latest().voters} == {"v1", "v2", "s0"}


def test_there_are_never_fewer_voters_while_others_take_their_places() -> None:
    """All of them: whoever goes is kept until somebody has come."""
    world = quiet(Shape(voters=3, spares=3, members=1))
    number = world.nodes["m0"].request(d.VotersWanted(("v0", "v1", "v2"), ("s0", "s1", "s2")))
    wait(world, lambda: number in world.nodes["m0"].answers, 1.0)
    counts = {3}

    def is_over() -> bool:
        counts.add(len(world.latest().voters))
        return world.unsettled() == ""

    wait(world, is_over, 8.0)
    assert {voter.node for voter in world.latest().voters} == {"s0", "s1", "s2"}
    assert counts == {3, 4}


def test_a_voter_that_was_removed_while_it_was_away_hears_of_it() -> None:
    """Nobody sends it the log any more, and by its own log it is still a voter."""
    world = quiet()
    away = other(world, leader(world))
    away.crash(keeps_first=True)
    wanted = tuple(name for name in ("v0", "v1", "v2") if name != away.name)
    world.nodes["m0"].request(d.VotersWanted(("v0", "v1", "v2"), wanted))
    wait(world, lambda: len(world.latest().voters) == 2, 5.0)
    away.start()
    wait(world, lambda: world.unsettled() == "", 8.0)
    terms = dict(world.ledger.leaders)
    world.clock.run_until(world.clock.now + 5)
    assert world.ledger.leaders == terms


@pytest.mark.parametrize("voters", [1, 5])
def test_one_voter_works_alone_and_five_together(voters: int) -> None:
    world = quiet(Shape(voters=voters, members=1, groups=((0,),)))
    world.nodes["v0"].crash(keeps_first=True)
    world.nodes["v0"].start()
    world.settle()


def test_voters_with_different_essential_parameters_found_nothing() -> None:
    world = GroupsWorld(3, Shape(voters=3, members=0), has_faults=False)
    world.nodes["v2"].essential = b"other"
    world.clock.run_until(5)
    assert world.latest().index == 0
    assert [report.code for report in world.nodes["v0"].reports] == ["essential-differs"]
    assert not world.nodes["v2"].is_alive, "it refuses to start"
    assert world.nodes["v1"].is_alive, "it waits for one that agrees"
    world.nodes["v2"].essential = world.nodes["v0"].essential
    world.nodes["v2"].start()
    wait(world, lambda: world.latest().index > 0, 5.0)


def test_a_voter_of_a_cluster_does_not_mind_a_stranger_that_would_found_another() -> None:
    world = quiet(Shape(voters=3, members=0))
    founder = world.nodes["v0"]
    founder.crash(keeps_first=False, loses_disk=True)
    founder.essential = b"other"
    founder.start()
    wait(world, lambda: not founder.is_alive, 5.0)
    assert world.nodes["v1"].is_alive and world.nodes["v2"].is_alive


def test_a_node_with_other_essential_parameters_is_turned_away() -> None:
    world = quiet()
    strange = world.nodes["m1"]
    strange.crash(keeps_first=False)
    strange.essential = b"other"
    strange.start()
    wait(world, lambda: not strange.is_alive, 3.0)
    wait(world, lambda: "m1" not in names(world, leader(world)), 3.0)


def test_a_single_voter_that_is_also_primary_restarts() -> None:
    world = quiet(Shape(voters=1, members=2, groups=((0, 1, 2),)))
    wait(world, lambda: len(world.ledger.confirmed.get("g0", ())) > 5, 5.0)
    epoch = world.groups()["g0"].epoch
    world.nodes["v0"].crash(keeps_first=False)
    world.nodes["v0"].start()
    wait(world, lambda: world.groups()["g0"].epoch > epoch, 5.0)
    world.settle()


# -- replica groups --------------------------------------------------------------------------------------------


def test_a_dead_primary_is_replaced_by_the_next_in_rank() -> None:
    world = quiet(Shape(voters=3, members=3, groups=((3, 4, 5),)))
    before = world.groups()["g0"]
    assert before.primary is not None and before.primary.node == "m0"
    dead = world.nodes["m0"]
    dead.crash(keeps_first=False)
    leader(world).tell(NeighbourLost("m0", dead.incarnation, True))
    assert wait(world, lambda: world.groups()["g0"].epoch > before.epoch, 2.0) < 0.5
    after = world.groups()["g0"]
    assert after.primary in before.in_sync[1:] and set(after.in_sync) == set(before.in_sync[1:])


def test_a_group_whose_only_replica_lost_its_disk_waits_for_it_and_says_so() -> None:
    world = quiet(Shape(voters=3, members=1, groups=((3,),)))
    epoch = world.groups()["g0"].epoch
    world.nodes["m0"].crash(keeps_first=False, loses_disk=True)
    world.nodes["m0"].start()
    world.clock.run_until(world.clock.now + 8)
    assert world.groups()["g0"].epoch == epoch
    assert "group-waits" in [report.code for report in leader(world).reports]


def test_a_drained_node_is_primary_of_nothing_and_loses_nothing() -> None:
    world = quiet(Shape(voters=3, members=3, groups=((3, 4, 5), (3, 4))))
    number = world.nodes["v0"].request(d.DrainSet("m0", True))
    wait(world, lambda: number in world.nodes["v0"].answers, 1.0)
    wait(world, lambda: all(g.primary and g.primary.node != "m0" for g in world.groups().values()), 3.0)
    assert all(len(group.in_sync) == len(group.members) for group in world.groups().values())


def late_admission(world: GroupsWorld) -> None:
    """A primary's question to admit a replica is decided; the replica is taken out again; then a copy of it arrives."""
    copies: list[tuple[str, bytes]] = []
    send = world.net.send

    def spy(sender: str, to: str, data: bytes, message: Message) -> None:
        if isinstance(message, AdmitAsk):
            copies.append((sender, data))
        send(sender, to, data, message)

    world.net.send = spy  # type: ignore[method-assign]
    for _ in range(2):
        world.nodes["m2"].pause(2.0)
        wait(world, lambda: len(world.groups()["g0"].in_sync) == 2, 3.0)
        if copies:
            leader(world).receive(*copies[0])
            world.clock.run_until(world.clock.now + 0.1)
        wait(world, lambda: len(world.groups()["g0"].in_sync) == 3, 5.0)


def test_a_late_copy_of_a_primarys_question_changes_nothing() -> None:
    world = quiet(Shape(voters=3, members=3, groups=((3, 4, 5),)))
    late_admission(world)
    assert [len(world.ledger.configurations[("g0", epoch)].in_sync) for epoch in range(1, 6)] == [3, 2, 3, 2, 3]


# -- many ------------------------------------------------------------------------------------------------------


def test_a_hundred_members_share_one_view() -> None:
    world = GroupsWorld(5, Shape(voters=3, members=100), has_faults=False)
    wait(world, lambda: len(world.latest().nodes) == 103, 6.0)
    world.settle()
    sent = world.net.sent
    world.clock.run_until(world.clock.now + 1)
    assert (world.net.sent - sent) / 103 < 20, "heartbeats and their answers"
