"""Goal: the rules that make one history of the voters' logs, each by itself. Method: voters joined by hand."""
import msgspec
import pytest

from angarium.core.groups import protocol as p
from angarium.core.groups.decisions import SettingSet
from angarium.core.groups.leading import Leading
from angarium.core.groups.log import TERM, Log, TermRecord
from angarium.core.groups.raft import Role
from angarium.core.groups.records import State, decode_state, encode_state
from tests.unit.groups.groups_voters import CLUSTER, SETTINGS, One, Several, voter


def ask(candidate: str, to: str, term: int, last: tuple[int, int] = (0, 1), **how: bool) -> p.VoteAsk:
    is_pre, is_transfer = how.get("pre", False), how.get("transfer", False)
    return p.VoteAsk(term, voter(candidate), voter(to).store, CLUSTER, *last, is_pre, is_transfer)


def granted(one: One) -> list[bool]:
    one.write(0.0)
    return [answer.is_granted for answer in one.says(p.VoteAnswer) if isinstance(answer, p.VoteAnswer)]


# -- votes -----------------------------------------------------------------------------------------------------


def test_a_voter_votes_once_in_a_term_also_after_a_restart() -> None:
    one = One("a", "abc")
    one.receive("b", ask("b", "a", 3), 0.0)
    assert granted(one) == [True]
    one.receive("c", ask("c", "a", 3), 0.0)
    assert granted(one) == [False]
    one.receive("b", ask("b", "a", 3), 0.0)
    assert granted(one) == [True]
    again = One("a", "abc", term=msgspec.msgpack.decode(one.disk[TERM], type=TermRecord))
    again.receive("c", ask("c", "a", 3), 0.0)
    assert granted(again) == [False]


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    one = One("a", "abc")
    one.receive("b", ask("b", "a", 3), 0.0)
    assert one.sent == [] and one.unwritten
    one.write(0.0)
    assert len(one.says(p.VoteAnswer)) == 1


@pytest.mark.parametrize(("last", "is_granted"), [((2, 3), True), ((2, 2), False), ((1, 9), False), ((3, 1), True)])
def test_votes_go_to_logs_that_are_long_enough(last: tuple[int, int], is_granted: bool) -> None:
    one = One("a", "abc", (1, 2))
    one.receive("b", ask("b", "a", 9, last), 0.0)
    assert granted(one) == [is_granted]


def test_what_is_for_another_disk_or_another_cluster_is_not_for_us() -> None:
    one = One("a", "abc")
    message = ask("b", "a", 3)
    one.receive("b", p.VoteAsk(3, voter("b"), b"an older disk", CLUSTER, 0, 1, False, False), 0.0)
    one.receive("b", p.VoteAsk(3, voter("b"), message.to, b"another cluster", 0, 1, False, False), 0.0)
    assert granted(one) == [] and one.raft.term == 0


def test_a_pre_vote_changes_nothing() -> None:
    one = One("a", "abc")
    one.receive("b", ask("b", "a", 3, pre=True), 0.0)
    assert granted(one) == [True] and one.raft.term == 0 and one.disk == {}


def test_whoever_hears_a_leader_elects_nobody_else_unless_the_leader_asks_for_it() -> None:
    voters = Several("abc")
    voters.elect("a")
    voters.run(seconds=0.3)
    term = voters["b"].raft.term
    voters["b"].receive("c", ask("c", "b", term + 5, (9, 9)), voters.now)
    voters["b"].receive("c", ask("c", "b", term + 5, (9, 9), pre=True), voters.now)
    assert voters["b"].raft.term == term
    voters["b"].receive("c", ask("c", "b", term + 5, (9, 9), transfer=True), voters.now)
    assert voters["b"].raft.term == term + 5


def test_a_candidate_without_a_majority_asks_less_and_less_often_and_keeps_its_term() -> None:
    one = One("a", "abc")
    asked = []
    for step in range(400):
        one.tick(step * 0.05)
        asked += [step * 0.05] * len(one.says(p.VoteAsk))
    assert one.raft.term == 0 and one.raft.role is Role.PRE_CANDIDATE
    assert len(asked) < 2 * (20 / SETTINGS.beacon_s_max * 1.6 + 6)


def test_a_single_voter_leads_when_its_vote_is_on_disk() -> None:
    one = One("a", "a")
    one.tick(2.0)
    assert not one.raft.is_leader
    one.write(2.0)
    assert one.raft.is_leader and one.raft.commit == one.raft.log.last_index == 2


# -- leading ---------------------------------------------------------------------------------------------------


def test_a_leader_commits_what_a_majority_has_on_disk() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    assert leader.leading is not None and leader.commit == 2
    index = leader.leading.propose(SettingSet("k", b"v"), voters.now)
    voters["a"].take()
    voters["a"].write(voters.now)
    assert leader.commit == index - 1, "its own disk is not a majority"
    voters.run(only="ab")
    assert leader.commit == index


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """A majority has it, and still another could be elected and overwrite it: only a later entry makes it final."""
    fresh = Several("abcde", {"a": (2,), "b": (2,), "c": (2,), "d": (), "e": (3,)})["a"].raft
    fresh.term, fresh.role = 4, Role.LEADER
    fresh.leading = Leading(fresh, 0.0)
    fresh.leading.begin(0.0)
    for name in "bc":
        fresh.leading.answered(p.AppendAnswer(4, voter(name).store, True, 2, 0.0), 0.0)
    assert fresh.commit == 0
    for name in "bc":
        fresh.leading.answered(p.AppendAnswer(4, voter(name).store, True, 3, 0.0), 0.0)
    assert fresh.commit == 0, "its own disk has it not yet: two of five"
    fresh.leading.answered(p.AppendAnswer(4, voter("d").store, True, 3, 0.0), 0.0)
    assert fresh.commit == 3


def test_a_log_that_went_another_way_is_made_equal() -> None:
    voters = Several("abc", {"a": (1, 1, 4, 4), "b": (1, 1, 2, 2, 2, 2), "c": (1,)})
    leader = voters.elect("a")
    for name in "bc":
        log = voters[name].raft.log
        assert [log.term_at(i) for i in range(1, log.last_index + 1)] == [0, 1, 1, 4, 4, leader.term]
    assert leader.commit == 6


def test_what_is_committed_cannot_be_truncated() -> None:
    voters = Several("abc", {"a": (1,), "b": (1,), "c": (1,)})
    voters.elect("a")
    voters.run(seconds=0.3)
    follower = voters["b"].raft
    assert follower.commit == 3
    wrong = p.Entry(9, 3, b"")
    message = p.Append(9, voter("c"), follower.me.store, CLUSTER, 2, 1, (wrong,), 3, 0.0)
    voters["b"].receive("c", message, voters.now)
    assert follower.log.term_at(3) == voters["a"].raft.term, "it is taken for what we have"
    with pytest.raises(AssertionError, match="is committed"):
        follower._truncate(3)


def test_a_leader_that_is_not_heard_lays_it_down() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    voters.run(only="a", seconds=SETTINGS.election_s + 0.3)
    assert not leader.is_leader and leader.leader is None


def test_an_answer_that_was_long_under_way_is_no_sign_of_life() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    assert leader.leading is not None
    term, stamp = leader.term, voters.now
    for _ in range(30):
        voters.now += 0.05
        voters["a"].receive("b", p.AppendAnswer(term, voter("b").store, True, 2, stamp), voters.now)
        voters["a"].tick(voters.now)
    assert not leader.is_leader


def test_a_leader_that_stood_still_for_long_lays_it_down_before_anything_else() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    leader.lagged(SETTINGS.election_s / 2, voters.now + 1)
    assert leader.is_leader
    leader.lagged(SETTINGS.election_s, voters.now + 2)
    assert not leader.is_leader


def test_leadership_goes_to_whoever_is_asked() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    assert leader.leading is not None
    assert leader.leading.transfer(voter("c"), voters.now) == voter("c")
    voters["a"].take()
    voters.run()
    assert voters["c"].raft.is_leader and not leader.is_leader


# -- voters ----------------------------------------------------------------------------------------------------


def test_no_voter_changes_before_an_entry_of_the_own_term_is_committed_nor_two_at_once() -> None:
    voters = Several("abc")
    leader = voters.elect("a", only="ab")
    assert leader.leading is not None and leader.leading.may_change_voters
    leader.leading.change_voters((voter("a"), voter("b")), voters.now)
    assert leader.log.voters == (voter("a"), voter("b")) and not leader.leading.may_change_voters
    voters["a"].take()
    voters.run(only="ab")
    assert leader.leading.may_change_voters
    fresh = One("a", "abc").raft
    fresh.term, fresh.role, fresh.leading = 1, Role.LEADER, Leading(fresh, 0.0)
    fresh.leading.begin(0.0)
    assert not fresh.leading.may_change_voters
    with pytest.raises(AssertionError):
        fresh.leading.change_voters((voter("a"),), 0.0)


def test_a_node_that_does_not_vote_gets_the_log_and_never_stands() -> None:
    voters = Several("abc")
    leader = voters.elect("a")
    assert leader.leading is not None
    learner = One("d", "abc")
    learner.raft.log = Log()
    learner.raft.durable_index = 0
    voters.all["d"] = learner
    leader.leading.learners = {voter("d").store: voter("d")}
    voters.run(seconds=0.5)
    assert learner.raft.log.last_index == leader.log.last_index and leader.leading.is_caught_up(voter("d"))
    assert not learner.raft.is_voter and learner.raft.deadline() is None


def test_a_far_follower_gets_a_snapshot_in_parts() -> None:
    voters = Several("abc", {"a": (1, 1, 1, 1), "b": (1, 1, 1, 1)})
    leader = voters.elect("a", only="ab")
    state = State(index=5, voters=tuple(map(voter, "abc")), cluster=b"x" * 3 * SETTINGS.snapshot_part_bytes)
    leader.log.compact(5, encode_state(state), tail_entries=0)
    voters.run(seconds=1.0)
    follower = voters["c"].raft
    assert follower.log.snapshot.index == 5 and decode_state(follower.log.snapshot.state) == state
    assert follower.commit == leader.commit == leader.log.last_index
