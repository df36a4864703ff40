"""Goal: queues that hold very large messages, and are sent some, are moved between replica groups again and again while
nodes die or are cut off: every stream arrives as it was sent, whoever sends or reads one goes on where the queue is, no
file is left where nobody needs it; and what breaks that is seen. Method: whole clusters in virtual time, with senders
and receivers that know each stream by its hash; then bugs planted in the copying of files."""
from collections.abc import Callable
from dataclasses import replace

import pytest

from angarium.core.moving.files import ArrivingFiles
from angarium.core.moving.moves import Moves
from angarium.core.stream.streams import Streams
from angarium.core.stream.table import StreamTable
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.streams import ClusterStreamsWorld
from angarium.sim.stream_files import SimStreamFiles
from angarium.sim.world import Outcome, draw_settings, run_seed
from tests.simulation.planted import assert_noticed
from tests.simulation.test_cluster import said
from tests.simulation.test_moving import APART, MOVE, TOGETHER

Plant = Callable[[pytest.MonkeyPatch], None]


def streams_world(seed: int, *faults: str, shape: Shape = TOGETHER) -> ClusterStreamsWorld:
    settings = replace(draw_settings(seed), faults=(MOVE, MOVE, *faults), trouble_s=6.0)
    return ClusterStreamsWorld(seed, settings, shape=shape)


def test_content_goes_along_and_all_of_it_arrives() -> None:
    result = run_seed(4, streams_world)
    assert not said(result) and isinstance(result, Outcome)
    assert result.tally["fragments moved"] > 20 and result.tally["streams"] > 20 and result.tally["streams resumed"]


@pytest.mark.parametrize(
    "faults",
    [("kill-primary",), ("kill-at-a-sync", "cut-client"), ("partition",), ("power-cut-of-all",), ("disk-full",),
     ("client-crash", "copies")],
    ids="+".join,
)  # fmt: skip
@pytest.mark.parametrize("shape", [TOGETHER, APART], ids=["together", "apart"])
def test_in_trouble(faults: tuple[str, ...], shape: Shape) -> None:
    assert not said(run_seed(6, lambda seed: streams_world(seed, *faults, shape=shape)))


def test_a_backup_that_missed_that_a_file_was_deleted_deletes_it_later() -> None:
    """In the same epoch, after it had told the primary once which files it has: it was still there then."""
    assert not said(run_seed(910_029, ClusterStreamsWorld))


def test_blocks_that_are_on_their_way_to_the_disk_of_a_new_primary_may_come_again() -> None:
    """It is asked how far a stream is before they are written, and is sent them once more: the same."""
    assert not said(run_seed(950_028, ClusterStreamsWorld))


def test_what_a_dead_primary_had_begun_is_deleted_though_its_successor_has_heard_of_it() -> None:
    assert not said(run_seed(1_500_017, ClusterStreamsWorld))


def test_what_a_new_primary_finds_is_not_told_to_be_stored_before_every_copy_has_it() -> None:
    """It had written a fragment that its predecessor never told, and was itself killed: its sender kept none of it."""
    assert not said(run_seed(880_029, ClusterStreamsWorld))


def test_who_comes_back_too_late_may_ask_by_name_for_what_another_has_settled() -> None:
    """Before it is told that it holds the message no longer: reading by name waits for no consumer."""
    assert not said(run_seed(2_000_014, ClusterStreamsWorld))


def test_the_same_seed_moves_the_same() -> None:
    first, second = (streams_world(7, "kill-primary").run() for _ in range(2))
    assert first.digest == second.digest


def rows_are_taken_before_their_content(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArrivingFiles, "lacking", lambda files, name, wanted: None)


def the_source_keeps_its_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Streams, "leave", lambda streams, destination: [])


def the_source_deletes_its_files_before_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    take_out = Streams.take_out

    def hasty(streams: Streams, destination: int) -> list[bytes]:
        streams.table.forget(destination)
        return take_out(streams, destination)

    patch.setattr(Streams, "take_out", hasty)


def a_copy_that_is_given_up_leaves_its_files(patch: pytest.MonkeyPatch) -> None:
    drop = ArrivingFiles.drop
    patch.setattr(ArrivingFiles, "drop", lambda files, name: drop(files, name)[:0])


def rows_that_are_given_up_leave_their_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamTable, "forget", lambda table, destination: None)


def what_is_deleted_late_takes_a_new_file_of_the_same_name_with_it(patch: pytest.MonkeyPatch) -> None:
    def forgets(files: SimStreamFiles, stream: bytes) -> None:
        if stream in files._deleting and files._synced.pop(stream, 0):  # written again, and still to be deleted
            files._blocks[stream] = []

    patch.setattr(SimStreamFiles, "_finish_deletion", forgets)


def who_reads_by_name_is_told_that_it_is_not_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moves, "stream_read", lambda moves, session, frame: None)


CAUGHT: dict[Plant, tuple[int, tuple[str, ...]]] = {  # and a seed that is known to notice, with what troubles
    rows_are_taken_before_their_content: (6, ()),
    the_source_keeps_its_files: (6, ()),
    the_source_deletes_its_files_before_it_is_decided: (6, ()),
    a_copy_that_is_given_up_leaves_its_files: (4, ("disk-full",)),
    rows_that_are_given_up_leave_their_files: (6, ()),
    what_is_deleted_late_takes_a_new_file_of_the_same_name_with_it: (4, ()),
    who_reads_by_name_is_told_that_it_is_not_there: (10, ()),
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first, faults = CAUGHT[plant]
    seeds = [first, *(seed for seed in range(6) if seed != first)]
    assert_noticed(plant.__name__, seeds, lambda seed: streams_world(seed, *faults))
