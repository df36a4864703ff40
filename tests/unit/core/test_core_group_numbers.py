"""Goal: each replica group gives its destinations ids of its own, across restarts, and takes no other group's store.
Method: message managers of several numbers on a fake disk."""
import pytest

from angarium.core.destination.restoring import NEXT_DESTINATION_KEY
from angarium.core.errors import StorageCorrupt
from angarium.core.ids import DESTINATION_BITS, destination_id, group_of
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World


@pytest.mark.parametrize("number", [0, 1, 5, 1_000])
def test_ids_begin_at_one_in_each_group_and_go_on_after_a_restart(number: int) -> None:
    world = World(number=number)
    assert [world.locate(name) for name in "ab"] == [number << 40 | 1, number << 40 | 2]
    assert world.request("destination.remove", name="b").code == ""
    world = world.restarted()
    assert [world.locate(name) for name in "abc"] == [number << 40 | 1, number << 40 | 3, number << 40 | 4]


def test_what_is_stored_is_found_again_under_its_id() -> None:
    world = World(number=3)
    destination = world.queue_with(2, 3)
    reader = world.consumer(destination, credit=2)
    reader.settle((0, 1))
    reader.close()
    world = world.restarted()
    assert group_of(destination) == 3
    assert world.consumer(world.locate("q")).bodies == [b"m1", b"m2", b"m3", b"m4"]


def test_the_store_of_another_group_is_refused() -> None:
    world = World(number=2)
    world.locate("q")
    with pytest.raises(StorageCorrupt, match="is of replica group 2, and this is group 1: the store belongs to"):
        World(disk=world.disk, number=1)


def test_the_last_id_is_not_followed_by_one_of_the_next_group() -> None:
    world = World(number=1)
    last = destination_id(1, (1 << DESTINATION_BITS) - 1)
    world.disk.tables[Table.NODE] = {NEXT_DESTINATION_KEY: last.to_bytes(8, "big")}
    world = world.restarted()
    assert world.locate("last") == last
    for _ in range(2):
        session = world.session()
        world.frame(session, 0, frames.Locate("more", DestinationKind.QUEUE))
        assert world.last(session, frames.Located).code == "too-many-destinations"
        world = world.restarted()
