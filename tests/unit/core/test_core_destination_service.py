"""Goal: what a session says reaches the group that has to hear it, and what several groups answer is one answer."""
import pytest

from angarium.core.errors import LocalProtocolError
from angarium.core.groups.records import Placement
from angarium.core.ids import destination_id
from angarium.core.session.destination_service import DestinationService, merge_pages
from angarium.core.session.events import DestinationsMoved, FromBus, ToBus
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind

SESSION = b"s" * 16


@pytest.fixture
def service() -> DestinationService:
    made = DestinationService()
    made.placed(Placement(1, (1, 2, 3) * 300, {"moved": 7}))
    return made


def groups_of(service: DestinationService, frame: frames.Frame, destination: int = 0) -> list[int]:
    return [posted.group for posted in service.route(ToBus(SESSION, destination, frame))]


def test_an_id_tells_its_group(service: DestinationService) -> None:
    assert groups_of(service, frames.Stall(True), destination_id(3, 12)) == [3]


def test_a_name_is_always_located_at_the_same_group(service: DestinationService) -> None:
    located = groups_of(service, frames.Locate("orders", DestinationKind.QUEUE))
    assert located == groups_of(service, frames.Request(1, "destination.describe", {"name": "orders"}))
    assert located == groups_of(service, frames.StreamRead(1, -1, 0, 0, 1, "orders"))


def test_names_are_spread_over_all_groups(service: DestinationService) -> None:
    found = {service.group_of_name(f"queue-{n}") for n in range(100)}
    assert found == {1, 2, 3}


def test_a_destination_that_was_moved_is_where_the_administrator_put_it(service: DestinationService) -> None:
    assert groups_of(service, frames.Locate("moved", DestinationKind.QUEUE)) == [7]


def test_the_dead_message_queue_of_a_group_is_in_that_group(service: DestinationService) -> None:
    for group in (1, 2, 3, 7):
        assert groups_of(service, frames.Locate(f"_DMQ.{group}", DestinationKind.QUEUE)) == [group]
        assert groups_of(service, frames.Request(1, "destination.browse", {"name": f"_DMQ.{group}"})) == [group]


def test_a_request_may_ask_for_one_group(service: DestinationService) -> None:
    assert groups_of(service, frames.Request(1, "dmq.list", {"group": 2})) == [2]


@pytest.mark.parametrize(
    "frame", [frames.SessionEnded(True), frames.ClientHere(b"c"), frames.ClientEnded(b"c", True), frames.WatchClose(1)]
)
def test_what_concerns_the_whole_session_goes_to_all_groups(service: DestinationService, frame: frames.Frame) -> None:
    assert groups_of(service, frame) == [1, 2, 3, 7]


def test_nothing_is_located_before_slots_are_dealt() -> None:
    with pytest.raises(LocalProtocolError, match="dealt"):
        DestinationService().route(ToBus(SESSION, 0, frames.Locate("orders", DestinationKind.QUEUE)))


def test_a_list_is_merged_when_all_groups_have_answered(service: DestinationService) -> None:
    assert groups_of(service, frames.Request(5, "destination.list", {})) == [1, 2, 3, 7]
    pages: dict[int, list[dict[str, object]]] = {1: [{"name": "b"}], 2: [{"name": "a"}], 3: [], 7: [{"name": "c"}]}
    replies = {group: FromBus(SESSION, frames.Reply(5, "", "", page)) for group, page in pages.items()}
    answers = [service.answered(group, reply) for group, reply in replies.items()]
    assert answers[:3] == [None, None, None]
    # Beyond "a" group 2 may have more.
    assert answers[3] == FromBus(SESSION, frames.Reply(5, "", "", [{"name": "a"}]))


def test_a_group_that_answers_twice_counts_once(service: DestinationService) -> None:
    groups_of(service, frames.Request(5, "destination.list", {}))
    for _ in range(2):
        assert service.answered(1, FromBus(SESSION, frames.Reply(5, "", "", []))) is None
    assert service.answered(2, FromBus(SESSION, frames.Reply(5, "", "", []))) is None
    assert service.answered(3, FromBus(SESSION, frames.Reply(5, "", "", []))) is None
    assert service.answered(7, FromBus(SESSION, frames.Reply(5, "", "", []))) is not None


def test_a_refusal_of_one_group_is_the_answer(service: DestinationService) -> None:
    groups_of(service, frames.Request(5, "destination.list", {}))
    refused = FromBus(SESSION, frames.Reply(5, "bad-argument", "no"))
    assert service.answered(1, refused) == refused


def test_a_watch_is_complete_when_it_is_in_all_groups(service: DestinationService) -> None:
    groups_of(service, frames.Watch(1, "**", attachment=b"x"))
    found = FromBus(SESSION, frames.WatchFound(1, DestinationKind.TOPIC, ["t"], attachment=b"x"))
    complete = FromBus(SESSION, frames.WatchFound(1, DestinationKind.TOPIC, [], complete=True, attachment=b"x"))
    assert service.answered(1, found) == found
    assert [service.answered(group, complete) for group in (1, 2, 3)] == [None, None, None]
    assert service.answered(7, complete) == complete


def test_what_a_lost_group_has_not_answered_is_forgotten(service: DestinationService) -> None:
    groups_of(service, frames.Request(5, "destination.list", {}))
    groups_of(service, frames.Watch(1, "**", attachment=b"x"))
    service.answered(1, FromBus(SESSION, frames.Reply(5, "", "", [])))
    service.group_lost(2)
    groups_of(service, frames.Request(6, "destination.list", {}))
    late = FromBus(SESSION, frames.Reply(6, "", "", []))
    assert [service.answered(group, late) for group in (1, 2, 3)] == [None, None, None]
    assert service.answered(7, late) == late


def test_merged_pages_reach_the_end_of_every_group() -> None:
    """Paging with `after` goes through everything, in order, whatever the sizes of pages."""
    everything = {1: ["a", "d", "e"], 2: ["b", "c"], 3: ["f"]}
    after, seen = "", []
    while True:
        pages = [[{"name": n} for n in names if n > after][:2] for names in everything.values()]
        merged = [described["name"] for described in merge_pages(pages)]
        if not merged:
            break
        seen += merged
        after = merged[-1]
    assert seen == ["a", "b", "c", "d", "e", "f"]


def test_what_is_elsewhere_than_before_is_told() -> None:
    made = DestinationService()
    slots = (1, 2) * 512
    assert made.placed(Placement(1, slots, {"a": 1})) is None, "nobody has looked for anything before"
    assert Placement(1, slots).group_of("a") == 2 and Placement(1, slots).group_of("b") == 2
    assert made.placed(Placement(2, slots, {"a": 1, "b": 1})) == DestinationsMoved({"b": 1})
    assert made.placed(Placement(3, slots, {"b": 1})) == DestinationsMoved({"a": 2}), "it is where it belongs again"
    assert made.group_of_name("a") == 2
    assert made.placed(Placement(4, slots, {"b": 1}, moves_begun=1)) is None, "a move has begun, and is not done"


def test_of_several_changes_at_once_something_may_have_gone_and_come_back() -> None:
    made = DestinationService()
    slots = (1, 2) * 512
    made.placed(Placement(1, slots))
    assert made.placed(Placement(3, slots)) is None, "nothing was moved"
    assert made.placed(Placement(7, slots, moves_begun=2)) == DestinationsMoved({}, is_unsure=True)
