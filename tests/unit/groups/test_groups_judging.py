"""Goal: a group gets another primary when it must, and only one that has everything. Method: the judge alone."""
import msgspec

from angarium.core.groups import messages as m
from angarium.core.groups import protocol as p
from angarium.core.groups.configuration import GroupConfiguration, Position, Replica, configured, formed
from angarium.core.groups.decisions import Decision, GroupFormed, GroupPromoted, SlotsDealt
from angarium.core.groups.events import SendMessage
from angarium.core.groups.judging import Judge
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.records import Hosted, NodeRecord, Placement, State
from angarium.core.groups.settings import GroupSettings
from angarium.core.report import Report

A, B, C = (Replica(name, name.encode()) for name in "abc")
SETTINGS = GroupSettings()


def node(name: str, start: int = 1, *, store: str = "", is_empty: bool = False) -> NodeRecord:
    hosted = Hosted("g", (store or name).encode(), is_empty)
    return NodeRecord(name, f"{name}{start}".encode(), (), (), (hosted,))


def group(in_sync: tuple[Replica, ...] = (A, B, C)) -> GroupConfiguration:
    whole = formed(configured("g", 1, ("a", "b", "c")), (A, B, C), b"a1")
    return msgspec.structs.replace(whole, in_sync=in_sync)


class Court:
    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.outbox = Outbox("leader")
        self.proposed: list[Decision] = []
        self.judge = Judge(7, self.outbox, settings, self.proposed.append, now=0.0)
        self.reports: list[str] = []

    def tick(self, state: State, now: float) -> list[tuple[str, str]]:
        """Who is asked what."""
        self.judge.tick(state, now)
        return self.asked()

    def asked(self) -> list[tuple[str, str]]:
        found = []
        for command in self.outbox.take():
            if isinstance(command, Report):
                self.reports.append(command.code)
            elif isinstance(command, SendMessage) and isinstance(command.message, p.FromLeader):
                assert command.message.term == 7
                found.append((command.to, type(command.message.message).__name__))
        return found


def state(*nodes: NodeRecord, of: GroupConfiguration | None = None, draining: tuple[str, ...] = ()) -> State:
    return State(
        index=1, nodes=nodes, groups={"g": of or group()}, draining=draining, placement=Placement(1, (1,))
    )


def fenced(replica: Replica, number: int, epoch: int = 1) -> m.Fenced:
    return m.Fenced("g", epoch, replica, Position(1, number))


ALL = (node("a"), node("b"), node("c"))


def test_nothing_is_done_to_a_group_whose_primary_is_there() -> None:
    court = Court()
    assert court.tick(state(*ALL), 0.0) == [] and court.proposed == []


def test_all_live_in_sync_replicas_are_fenced_and_the_furthest_is_promoted() -> None:
    court, now = Court(), state(node("b"), node("c"))
    assert court.tick(now, 0.0) == [("b", "FenceAsk"), ("c", "FenceAsk")]
    court.judge.fenced(now, fenced(B, 4), 0.1)
    assert court.proposed == []
    assert court.tick(now, 0.3) == [("c", "FenceAsk")], "asked again, who did not answer"
    court.judge.fenced(now, fenced(C, 6), 0.4)
    assert court.proposed == [GroupPromoted("g", 1, (C, B), b"c1")]


def test_a_replica_that_does_not_answer_is_left_out_but_not_all_of_them() -> None:
    court, now = Court(), state(node("b"), node("c"))
    court.tick(now, 0.0)
    court.tick(now, SETTINGS.fence_wait_s)
    assert court.proposed == [], "nobody answered"
    court.judge.fenced(now, fenced(B, 4), SETTINGS.fence_wait_s + 0.1)
    court.tick(now, 2 * SETTINGS.fence_wait_s)
    assert court.proposed == [GroupPromoted("g", 1, (B,), b"b1")]


def test_answers_for_another_epoch_or_of_strangers_count_for_nothing() -> None:
    court, now = Court(), state(node("b"), node("c"), of=group((A, B)))
    assert court.tick(now, 0.0) == [("b", "FenceAsk")]
    court.judge.fenced(now, fenced(C, 9), 0.1)
    court.judge.fenced(now, fenced(B, 4, epoch=0), 0.1)
    court.judge.fenced(now, fenced(Replica("b", b"another disk"), 9), 0.1)
    assert court.proposed == []


def test_a_primary_that_restarted_is_asked_like_the_others_and_may_be_primary_again() -> None:
    court, now = Court(), state(node("a", 2), node("b"), node("c"))
    assert [to for to, _ in court.tick(now, 0.0)] == ["a", "b", "c"]
    for replica in (A, B, C):
        court.judge.fenced(now, fenced(replica, 5), 0.1)
    assert court.proposed == [GroupPromoted("g", 1, (A, B, C), b"a2")]


def test_a_group_without_a_live_in_sync_replica_waits_and_says_so_once() -> None:
    court = Court()
    empty = state(node("a", 2, store="new"), of=group((A, B)))
    assert court.tick(empty, 0.0) == [] and court.tick(empty, 1.0) == []
    assert court.reports == ["group-waits"] and court.proposed == []
    back = state(node("b", 2), of=group((A, B)))
    assert court.tick(back, 2.0) == [("b", "FenceAsk")]
    court.judge.fenced(back, fenced(B, 3), 2.1)
    assert court.proposed == [], "the others may come, too"
    court.tick(back, 2.0 + SETTINGS.return_wait_s)
    assert court.proposed == [GroupPromoted("g", 1, (B,), b"b2")]


def test_a_primary_is_moved_when_all_is_acknowledged() -> None:
    court, now = Court(), state(*ALL)
    assert court.judge.move_primary(now, p.MovePrimary("g", 1, "c"), 0.0) == ("", "")
    assert court.tick(now, 0.0) == [("a", "HandOverAsk")]
    court.judge.handed_over(now, m.HandOverReady("g", 1, A, Position(1, 9)), 0.1)
    assert court.proposed == [GroupPromoted("g", 1, (C, A, B), b"c1")]


def test_a_primary_that_does_not_hand_over_is_fenced_and_who_is_wanted_wins_a_tie() -> None:
    court, now = Court(), state(*ALL)
    court.judge.move_primary(now, p.MovePrimary("g", 1, "c"), 0.0)
    assert len(court.tick(now, SETTINGS.hand_over_s)) == 3
    for replica in (A, B, C):
        court.judge.fenced(now, fenced(replica, 5), 5.1)
    assert court.proposed == [GroupPromoted("g", 1, (C, A, B), b"c1")]


def test_a_primary_that_stands_still_for_an_earlier_leader_is_taken_care_of() -> None:
    court, now = Court(), state(*ALL)
    court.judge.handed_over(now, m.HandOverReady("g", 1, A, Position(1, 9)), 0.0)
    assert [kind for _, kind in court.asked()] == ["FenceAsk"] * 3


def test_moves_that_cannot_be_are_refused() -> None:
    court, now = Court(), state(node("a"), node("b"))
    for request, code in (
        (p.MovePrimary("h", 1, "b"), "no-such-group"), (p.MovePrimary("g", 0, "b"), "stale-epoch"),
        (p.MovePrimary("g", 1, "c"), "not-in-sync"),
    ):  # fmt: skip
        assert court.judge.move_primary(now, request, 0.0)[0] == code


def test_a_draining_node_hands_over_if_somebody_can_take_it() -> None:
    assert Court().tick(state(*ALL, draining=("a",)), 0.0) == [("a", "HandOverAsk")]
    assert Court().tick(state(*ALL, draining=("a", "b", "c")), 0.0) == []


def test_a_group_is_formed_of_all_its_members_when_all_are_empty() -> None:
    members = [node(name, is_empty=True) for name in "abc"]
    new = configured("g", 1, ("a", "b", "c"))
    court = Court()
    court.tick(state(*members[:2], of=new), 0.0)
    assert court.proposed == []
    court.tick(state(*members, of=new), 0.1)
    assert court.proposed == [GroupFormed("g", (A, B, C), b"a1")]


def test_a_member_with_a_history_of_which_nothing_is_known_stops_the_forming() -> None:
    court, new = Court(), configured("g", 1, ("a", "b"))
    for now in (0.0, 1.0):
        court.tick(state(node("a", is_empty=True), node("b"), of=new), now)
    assert court.proposed == [] and court.reports == ["group-has-history"]


def test_slots_are_dealt_when_all_groups_are_formed() -> None:
    court = Court()
    undealt = state(*ALL).but(placement=Placement())
    court.tick(undealt, 0.0)
    assert court.proposed == [SlotsDealt(("g",))]


def test_slots_are_not_dealt_before_every_wanted_group_is_there() -> None:
    undealt = state(*ALL).but(placement=Placement())
    court = Court(GroupSettings(groups_wanted=("g", "h")))
    court.tick(undealt, 0.0)
    assert court.proposed == []
    court = Court(GroupSettings(groups_wanted=("g",)))
    court.tick(undealt, 0.0)
    assert court.proposed == [SlotsDealt(("g",))]


def test_a_proposal_that_had_no_effect_is_made_again() -> None:
    court, now = Court(), state(node("b"), of=group((A, B)))
    court.tick(now, 0.0)
    court.judge.fenced(now, fenced(B, 4), 0.1)
    court.tick(now, 0.5)
    assert len(court.proposed) == 1
    court.tick(now, 0.1 + SETTINGS.request_again_s)
    assert len(court.proposed) == 2
