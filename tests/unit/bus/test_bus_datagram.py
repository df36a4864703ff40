"""Goal: datagrams say what was meant, or nothing. Method: round trips, changed bytes, and noise."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.bus.datagram import (
    HEADER_BYTES,
    Ack,
    Evict,
    Have,
    Heartbeat,
    Join,
    Kind,
    Nak,
    Probe,
    Start,
    bits_of,
    decode_body,
    encode_body,
    kind_of,
    sequences_of,
)
from angarium.core.bus.events import BusSettings
from angarium.core.bus.records import RecordParser
from angarium.core.bus.seal import CONTROL, DATA, SealedBoxes
from angarium.core.bus.voice import Seen, Voice
from angarium.core.errors import ConfigError

ME, OTHER = bytes(15) + b"a", bytes(15) + b"b"
BODIES = (
    Heartbeat(7, 3, 99, 200), Ack(ME, 1, 5, 1_536, 99), Nak(ME, 5, b"\x05\x01"), Join(ME, 2), Start(ME, 2, 8, 4, 99),
    Evict(ME, 2), Have(ME, 9, 2, 1, 1), Probe(-1),
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_bodies_come_back_as_they_were(body: Heartbeat) -> None:
    assert decode_body(kind_of(body), encode_body(body)) == body
    assert decode_body(kind_of(body), encode_body(body)[: -3 if isinstance(body, Nak) else -1]) is None
    if not isinstance(body, Nak):
        assert decode_body(kind_of(body), encode_body(body) + b"a newer node's field") == body


@given(st.sampled_from([kind for kind in Kind if kind is not Kind.DATA]), st.binary(max_size=80))
def test_noise_is_no_body_or_some_body(kind: Kind, noise: bytes) -> None:
    body = decode_body(kind, noise)
    assert body is None or kind_of(body) is kind


@given(st.sets(st.integers(0, 3_000)), st.integers(0, 1 << 60))
def test_missing_sequences_come_back_as_they_were(offsets: set[int], low: int) -> None:
    missing = sorted(low + offset for offset in offsets)
    assert sequences_of(Nak(ME, low, bits_of(missing, low))) == missing


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 200))
def test_messages_are_found_wherever_the_stream_is_cut(messages: list[bytes], step: int) -> None:
    stream = b"".join(len(message).to_bytes(4, "little") + message for message in messages)
    parser = RecordParser(message_bytes_max=300)
    found: list[bytes] = []
    for at in range(0, len(stream), step):
        completed = parser.feed([stream[at : at + step]])
        assert completed is not None
        found += completed
        assert parser.waiting_bytes <= 304
    assert found == messages and not parser.waiting_bytes


def test_a_length_that_no_message_may_have_ends_the_stream() -> None:
    assert RecordParser(message_bytes_max=300).feed([(301).to_bytes(4, "little")]) is None


# -- seals -------------------------------------------------------------------------------------------------


def test_only_the_same_sender_channel_cluster_and_secret_open_it() -> None:
    secret = b"0123456789abcdef"
    sealed = SealedBoxes(secret, 1).box(ME, 3).seal(DATA, 9, b"body", b"header")
    assert SealedBoxes(secret, 1).box(ME, 3).open(DATA, 9, sealed, b"header") == b"body"
    for boxes, who, channel, kind, sequence, header in (
        (SealedBoxes(b"another secret, also long", 1), ME, 3, DATA, 9, b"header"),
        (SealedBoxes(secret, 2), ME, 3, DATA, 9, b"header"),
        (SealedBoxes(secret, 1), OTHER, 3, DATA, 9, b"header"),
        (SealedBoxes(secret, 1), ME, 4, DATA, 9, b"header"),
        (SealedBoxes(secret, 1), ME, 3, CONTROL, 9, b"header"),
        (SealedBoxes(secret, 1), ME, 3, DATA, 8, b"header"),
        (SealedBoxes(secret, 1), ME, 3, DATA, 9, b"heater"),
    ):
        assert boxes.box(who, channel).open(kind, sequence, sealed, header) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        SealedBoxes(b"too short", 1)


def test_no_datagram_of_a_voice_has_the_nonce_of_another() -> None:
    nonces: list[tuple[int, int]] = []

    class Watching:
        def seal(self, nonce_class: int, sequence: int, body: object, header: bytes) -> bytes:
            nonces.append((nonce_class, sequence))
            return bytes(16)

        def open(self, nonce_class: int, sequence: int, sealed: object, header: bytes) -> bytes | None:
            return None

    voice = Voice(channel=1, cluster=2, incarnation=ME, box=Watching())
    for sequence in range(1, 9):
        voice.data(sequence, 1, b"data")
    for body in BODIES:
        assert len(voice.say(body)) == HEADER_BYTES + 16
    assert len(set(nonces)) == len(nonces) == 8 + len(BODIES)


@given(st.lists(st.integers(1, 200), max_size=300))
def test_what_was_heard_is_never_new_again(sequences: list[int]) -> None:
    seen, noted = Seen(), set[int]()
    for sequence in sequences:
        if seen.is_new(sequence):
            assert sequence not in noted
            seen.note(sequence)
            noted.add(sequence)
        else:
            assert sequence in noted or sequence <= max(noted) - 64


@pytest.mark.parametrize("wrong", (
    {"ring_datagrams_low": 9_000}, {"ring_datagrams_high": 20_000}, {"window_datagrams": 70_000},
    {"window_datagrams": 10}, {"datagram_bytes_max": 100}, {"pace_bytes_per_s_first": 1},
), ids=str)  # fmt: skip
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="bus: "):
        BusSettings(**wrong)
