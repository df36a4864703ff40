"""Goal: a stream is read by whoever may, as far as it has credit, from any fragment on, and damage is found.
Method: the machine on fake files, step by step."""
import pytest

from angarium.core.stream.blocks import FRAGMENT_BYTES, Block, block_header, parse_block
from angarium.core.wire import frames
from tests.unit.core.core_streams import CONSUMER, FULL, QUEUE, World


def test_a_reader_gets_what_it_has_credit_for_and_ends_with_the_last() -> None:
    world = World()
    pieces = [bytes([number]) * FRAGMENT_BYTES for number in range(9)] + [b""]
    world.published(0, *pieces)
    world.read(0, limit=6)
    assert world.content() == pieces[:6]
    world.perform(world.streams.frame(CONSUMER, QUEUE, frames.StreamCredit(1, 100), b""))
    world.run_files()
    assert world.content() == pieces
    assert world.received(frames.StreamData, CONSUMER)[-1].last
    assert world.streams.reader_count == 0


def test_reading_goes_on_from_any_fragment_after_a_cut() -> None:
    world = World()
    pieces = [bytes([number]) * FRAGMENT_BYTES for number in range(4)] + [b"end"]
    world.published(0, *pieces)
    world.read(0, limit=3)
    world.perform(world.streams.session_ended(CONSUMER, QUEUE, closed=False, now=world.now))
    assert world.streams.reader_count == 0
    world.read(0, first=3)
    assert world.content() == pieces


def test_the_end_of_a_session_at_one_destination_leaves_its_streams_at_others() -> None:
    """The session was cut off and is back: another destination, which was busy, hears only now that it was away."""
    world = World()
    world.published(0, FULL, FULL, b"end")
    identity = world.open(2, session=CONSUMER)
    world.read(0, limit=1)
    for closed in (False, True):
        world.perform(world.streams.session_ended(CONSUMER, QUEUE + 1, closed=closed, now=world.now))
    assert (world.streams.open_count, world.streams.reader_count) == (1, 1)
    world.send(2, b"all", last=True, session=CONSUMER)
    world.run_files()
    assert world.received(frames.StreamStored, CONSUMER)[-1].stored == 1
    assert identity in world.files.blocks
    world.perform(world.streams.session_ended(CONSUMER, QUEUE, closed=True, now=world.now))
    assert (world.streams.open_count, world.streams.reader_count) == (0, 0)


def test_two_readers_of_one_stream_do_not_disturb_each_other() -> None:
    world = World()
    world.published(0, FULL, b"end")
    world.read(0, reader=1, limit=1)
    world.read(0, reader=2)
    assert (world.content(1), world.content(2)) == ([FULL], [FULL, b"end"])


@pytest.mark.parametrize(("position", "allowed", "code"), [(0, False, "not-held"), (1, True, "no-stream")])
def test_who_may_not_read_is_told_why(position: int, allowed: bool, code: str) -> None:
    world = World()
    world.published(0, b"all")
    world.read(position, allowed=allowed)
    (end,) = world.received(frames.StreamReadEnd, CONSUMER)
    assert (end.code, end.attachment) == (code, b"attached")


def test_a_reader_of_a_settled_message_is_told_so() -> None:
    world = World()
    world.published(0, FULL, b"end")
    world.read(0, limit=1)
    world.apply(world.streams.release_all(QUEUE, 0, 1))
    assert world.received(frames.StreamReadEnd, CONSUMER)[-1].code == "stream-gone"
    assert world.streams.reader_count == 0


def test_damage_ends_the_reader_after_what_is_sound_and_names_the_message() -> None:
    world = World()
    identity = world.published(4, FULL, FULL, b"end")
    world.files.damaged.add((identity, 1))
    world.read(4)
    assert world.content() == [FULL]
    assert world.received(frames.StreamReadEnd, CONSUMER)[-1].code == "stream-damaged"
    assert [(d.destination, d.position) for d in world.damages] == [(QUEUE, 4)]


def test_a_block_in_the_middle_that_says_it_is_the_last_is_damage() -> None:
    world = World()
    identity = world.published(4, FULL, FULL, b"end")
    world.files.blocks[identity][1] = world.files.blocks[identity][1]._replace(is_last=True)
    world.read(4)
    assert world.content() == [FULL]
    assert world.received(frames.StreamReadEnd, CONSUMER)[-1].code == "stream-damaged"


def test_a_closed_reader_gets_nothing_that_was_under_way() -> None:
    world = World()
    world.published(0, FULL, b"end")
    frame = frames.StreamRead(1, 1, 0, 0, 10)
    world.perform(world.streams.read(CONSUMER, QUEUE, frame, allowed=True))
    world.perform(world.streams.frame(CONSUMER, QUEUE, frames.StreamReadEnd(1), b""))
    world.run_files()
    assert world.content() == []


# -- blocks --------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_block_is_found() -> None:
    block = Block(0x352441C2, True, b"abc")  # crc32 of abc
    data = bytearray(block_header(6, block) + block.payload)
    assert parse_block(6, bytes(data)) == block
    assert parse_block(7, bytes(data)) is None
    assert parse_block(6, bytes(data[:-1])) is None
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert parse_block(6, bytes(data)) is None
        data[bit // 8] ^= 1 << bit % 8
