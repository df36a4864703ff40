"""Goal: a link is between two nodes that know the secret, and carries what was sent, or ends. Method: two sessions
joined by hand; bytes are cut anywhere, changed, repeated and recorded for later."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.bus.link import Greeting, LinkIdentity, LinkSession, Record
from angarium.core.errors import LocalProtocolError, RemoteProtocolError

SECRET = b"0123456789abcdef"
RECORD_BYTES_MAX = 4_096


def identity(number: int, *, secret: bytes = SECRET, cluster: int = 7) -> LinkIdentity:
    return LinkIdentity(secret, cluster, f"node-{number}", bytes(15) + bytes([number]), 4_000 + number)


def session(number: int, challenge: int = 0, **other: object) -> LinkSession:
    secret, cluster = other.get("secret", SECRET), other.get("cluster", 7)
    assert isinstance(secret, bytes) and isinstance(cluster, int)
    drawn = bytes([number, challenge]) * 16
    limit = RECORD_BYTES_MAX
    who = identity(number, secret=secret, cluster=cluster)
    return LinkSession(who, challenge=drawn, dialer=number == 1, record_bytes_max=limit)


def linked() -> tuple[LinkSession, LinkSession]:
    one, two = session(1), session(2)
    assert one.feed(two.greeting) == two.feed(one.greeting) == []
    assert one.feed(two.proof()) == two.feed(one.proof()) == []
    assert one.is_proven and two.is_proven
    return one, two


def test_both_know_who_the_other_is() -> None:
    one, two = linked()
    assert one.peer == Greeting("node-2", bytes(15) + b"\2", 4_002)
    assert two.peer == Greeting("node-1", bytes(15) + b"\1", 4_001)


RECORDS = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=99), st.binary(max_size=999)))


@given(RECORDS, st.integers(1, 500))
def test_records_arrive_as_sent_wherever_they_are_cut(sent: list[tuple[int, bytes, bytes]], step: int) -> None:
    one, two = linked()
    data = b"".join(one.seal(*record) for record in sent)
    got: list[Record] = []
    for at in range(0, len(data), step):
        got += two.feed(data[at : at + step])
    assert got == [Record(*record) for record in sent]


def test_nobody_is_proven_by_a_greeting_alone() -> None:
    one, two = session(1), session(2)
    two.feed(one.greeting)
    assert two.peer is not None and not two.is_proven


@pytest.mark.parametrize("code, peer", (
    ("link-forged", session(1, secret=b"another secret, also long")), ("other-cluster", session(1, cluster=8)),
))  # fmt: skip
def test_strangers_are_refused(code: str, peer: LinkSession) -> None:
    two = session(2)
    with pytest.raises(RemoteProtocolError) as refused:
        two.feed(peer.greeting)
        peer.feed(two.greeting)
        two.feed(peer.proof())
    assert refused.value.code == code and not two.is_proven


def test_a_recorded_conversation_proves_nothing_later() -> None:
    one, two = session(1), session(2)
    one.feed(two.greeting)
    recorded = one.greeting + one.proof() + one.seal(20, b"pay", b"again")
    again = session(2, challenge=1)  # the same node, a new connection
    with pytest.raises(RemoteProtocolError) as refused:
        again.feed(recorded)
    assert refused.value.code == "link-forged"


def test_a_record_cannot_be_repeated_left_out_or_sent_back() -> None:
    one, two = linked()
    first, second = one.seal(20, b"first", b""), one.seal(20, b"second", b"")
    two.feed(first)
    for repeated_or_early in (first, one.seal(20, b"third", b"")):
        with pytest.raises(RemoteProtocolError):
            two.feed(repeated_or_early)
    with pytest.raises(RemoteProtocolError):
        one.feed(second)


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_changed_byte_ends_the_link(at: int, change: int) -> None:
    one, two = linked()
    data = bytearray(one.seal(20, b"message", b"payload" * 5))
    data[at] ^= change
    with pytest.raises(RemoteProtocolError):
        two.feed(bytes(data) + bytes(RECORD_BYTES_MAX))  # a longer length waits for more: here it is


@given(st.binary(min_size=1, max_size=300))
def test_noise_is_refused_or_waits(noise: bytes) -> None:
    for peer in (session(2), linked()[1]):
        try:
            assert peer.feed(noise) == []
        except RemoteProtocolError as refused:
            assert refused.code in ("not-a-node", "record-too-long", "link-forged", "bad-link-version", "other-cluster")


def test_records_have_a_limit_both_ways() -> None:
    one, two = linked()
    with pytest.raises(LocalProtocolError, match="record_bytes_max 4,096"):
        one.seal(20, b"", bytes(4_073))
    assert len(two.feed(one.seal(20, b"", bytes(4_072)))) == 1
    with pytest.raises(RemoteProtocolError, match="4,097 bytes"):
        two.feed((4_097).to_bytes(4, "little"))


def test_before_it_has_proven_itself_a_peer_costs_nothing() -> None:
    one, two = session(1), session(2)
    two.feed(one.greeting)
    with pytest.raises(RemoteProtocolError, match="24 are allowed"):
        two.feed((4_000).to_bytes(4, "little"))


def test_our_own_greeting_is_no_peers() -> None:
    one = session(1)
    with pytest.raises(RemoteProtocolError) as refused:
        one.feed(one.greeting)
    assert refused.value.code == "link-to-itself"


def test_a_name_must_fit() -> None:
    with pytest.raises(LocalProtocolError, match="at most 255"):
        LinkSession(identity(1)._replace(name="x" * 256), challenge=bytes(32), dialer=True, record_bytes_max=99)
