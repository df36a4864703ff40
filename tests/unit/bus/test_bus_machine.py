"""Goal: each rule of the machine, by itself. Method: nodes joined by hand; datagrams are taken away and forged."""
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angarium.core.bus.datagram import Kind
from angarium.core.bus.events import (
    BusSettings,
    ChannelBlocked,
    ChannelUnblocked,
    DatagramsReceived,
    MembersChanged,
    ReachChanged,
    ReceiverPaused,
    Rejoin,
    Send,
)
from angarium.core.errors import LocalProtocolError, Unavailable
from tests.unit.bus.bus_pair import CHANNEL, CLUSTER, SMALL, Bus, Node, data_of, incarnation, kind_of


def test_every_receiver_gets_every_message_whole_and_in_order() -> None:
    bus = Bus(receivers=3)
    messages = [b"", b"short", b"x" * 5_000, b"y" * 100_000]
    bus.senders[0].send(*messages, now=bus.now)
    bus.run(0.2)
    assert [receiver.got for receiver in bus.receivers] == [messages] * 3


def test_a_sender_that_receives_gets_its_own_messages_at_once() -> None:
    bus = Bus(senders=1, receivers=1)
    node = bus.senders[0]
    bus.change([node], [node, *bus.receivers])
    bus.run(0.05)
    node.send(b"mine", now=bus.now)
    assert node.got == [b"mine"]
    bus.run(0.05)
    assert bus.receivers[0].got == [b"mine"]


def test_no_datagram_is_longer_than_allowed() -> None:
    bus = Bus()
    bus.senders[0].send(b"x" * 50_000, now=bus.now)
    assert max(len(datagram) for datagram in data_of(bus.senders[0])) == BusSettings().datagram_bytes_max


@pytest.mark.parametrize("lost", (0, 1, 4))
def test_what_is_lost_is_asked_for_and_sent_to_the_one_who_lacks_it(lost: int) -> None:
    bus = Bus()
    sender, (lucky, unlucky) = bus.senders[0], bus.receivers
    sender.send(b"x" * 6_000, now=bus.now)
    said, sender.said = data_of(sender), []
    lucky.tell(DatagramsReceived(said), bus.now)
    unlucky.tell(DatagramsReceived(said[:lost] + said[lost + 1 :]), bus.now)
    bus.now += 0.003  # past the back-off
    bus.exchange()
    for node in bus.nodes:
        node.tell(DatagramsReceived([]), bus.now)
    bus.run(0.02)
    assert lucky.got == unlucky.got == [b"x" * 6_000]
    assert sender.machine.counters.repair_datagrams == 1
    assert not lucky.drops.get("duplicate")


def test_what_several_lack_is_repaired_once_for_all() -> None:
    bus = Bus(receivers=3)
    bus.senders[0].send(b"x", now=bus.now)
    bus.senders[0].said.clear()
    bus.run(0.1)
    assert [receiver.got for receiver in bus.receivers] == [[b"x"]] * 3
    assert bus.senders[0].machine.counters.repair_datagrams == 1


def test_a_lost_tail_is_noticed_by_the_heartbeat() -> None:
    bus = Bus(receivers=1)
    bus.senders[0].send(b"last words", now=bus.now)
    bus.senders[0].said.clear()
    bus.run(0.05)
    assert bus.receivers[0].got == [b"last words"]


def test_heartbeats_become_rare_when_idle() -> None:
    bus = Bus(receivers=1)
    bus.senders[0].send(b"x", now=bus.now)
    bus.run(5.0)
    sender = bus.senders[0]
    before = bus.receivers[0].machine.counters.received_datagrams
    bus.run(10.0, step_s=0.01)
    assert 1 <= bus.receivers[0].machine.counters.received_datagrams - before <= 4
    assert sender.machine.deadline() is not None


# -- limits ------------------------------------------------------------------------------------------------


def test_a_full_ring_blocks_then_refuses_and_unblocks_when_acknowledged() -> None:
    bus = Bus(settings=SMALL)
    sender = bus.senders[0]
    sender.send(*[b"x" * 1_300] * 9, now=bus.now)
    assert sender.told == [ChannelBlocked(CHANNEL)]
    sender.send(*[b"x" * 1_300] * 6, now=bus.now)  # still has room
    number = sender.machine.number_next(CHANNEL)
    with pytest.raises(Unavailable, match="wait for ChannelUnblocked"):
        sender.send(*[b"x" * 1_300] * 3, now=bus.now)
    assert sender.machine.number_next(CHANNEL) == number, "what is refused changes nothing"
    bus.run(0.2)
    assert sender.told[-1] == ChannelUnblocked(CHANNEL)
    assert [len(receiver.got) for receiver in bus.receivers] == [15, 15]


def test_a_message_too_long_is_refused_with_limit_and_remedy() -> None:
    bus = Bus(settings=SMALL)
    with pytest.raises(LocalProtocolError, match=r"9,001 bytes exceeds message_bytes_max 9,000; send it in parts"):
        bus.senders[0].send(b"x" * 9_001, now=bus.now)


def test_no_more_is_under_way_than_the_window() -> None:
    bus = Bus(settings=SMALL)
    bus.senders[0].send(*[b"x" * 1_300] * 8, now=bus.now)
    assert len(data_of(bus.senders[0])) == SMALL.window_datagrams


def test_a_paused_receiver_stops_the_sender_and_is_not_put_out_when_alone() -> None:
    bus = Bus(receivers=1, settings=SMALL)
    sender, receiver = bus.senders[0], bus.receivers[0]
    receiver.tell(ReceiverPaused(CHANNEL, True), bus.now)
    bus.run(0.05)
    sender.send(*[b"x" * 1_300] * 9, now=bus.now)
    bus.run(2.0)
    assert receiver.got == [] and sender.told == [ChannelBlocked(CHANNEL)]
    receiver.tell(ReceiverPaused(CHANNEL, False), bus.now)
    bus.run(0.2)
    assert len(receiver.got) == 9


@pytest.mark.parametrize("event", (
    Send(99, [(b"x",)]), ReceiverPaused(99, True), Rejoin(99, incarnation(1)),
    MembersChanged(1 << 32, 1, (), ()), MembersChanged(4, 1, (incarnation(9),) * 2_000, ()),
    MembersChanged(4, 0, (), ()), MembersChanged(4, 1 << 32, (), ()), MembersChanged(4, 1, (b"short",), ()),
), ids=str)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_changes_nothing(event: Send) -> None:
    bus = Bus()
    before = dict(bus.senders[0].machine.channels)
    with pytest.raises(LocalProtocolError):
        bus.senders[0].tell(event, bus.now)
    assert bus.senders[0].machine.channels == before


def test_only_senders_send() -> None:
    bus = Bus()
    with pytest.raises(LocalProtocolError, match="none of its senders"):
        bus.receivers[0].send(b"x", now=bus.now)


def test_channels_have_a_maximum_for_the_life_of_the_node() -> None:
    node = Node(1, replace(SMALL, channels_max=2))
    for channel in (1, 2):
        node.tell(MembersChanged(channel, 1, (node.me,), ()), 0.0)
        node.tell(MembersChanged(channel, 2, (), ()), 0.0)
    with pytest.raises(LocalProtocolError, match="channels_max 2"):
        node.tell(MembersChanged(3, 1, (node.me,), ()), 0.0)


# -- what is dropped ---------------------------------------------------------------------------------------


def drops_of(receiver: Node, *datagrams: bytes, now: float) -> dict[str, int]:
    before = dict(receiver.drops)
    receiver.tell(DatagramsReceived(datagrams), now)
    after = {reason: count - before.get(reason, 0) for reason, count in receiver.drops.items()}
    return {reason: count for reason, count in after.items() if count}


def test_what_does_not_belong_is_dropped_and_counted_by_reason() -> None:
    bus = Bus()
    sender, receiver = bus.senders[0], bus.receivers[0]
    sender.send(b"x", now=bus.now)
    good = data_of(sender)[0]
    now = bus.now

    def changed(at: int, value: int) -> bytes:
        return good[:at] + bytes([value]) + good[at + 1 :]

    assert drops_of(receiver, b"", good[:47], now=now) == {"short": 2}
    assert drops_of(receiver, good[:-1], now=now) == {"short": 1}
    assert drops_of(receiver, changed(0, 9), changed(2, 1), now=now) == {"version": 2}
    assert drops_of(receiver, changed(1, 77), now=now) == {"kind": 1}
    assert drops_of(receiver, changed(4, 99), now=now) == {"channel": 1}
    assert drops_of(receiver, changed(9, good[9] ^ 1), now=now) == {"cluster": 1}
    assert drops_of(receiver, changed(31, 200), now=now) == {"stranger": 1}
    assert drops_of(receiver, changed(len(good) - 1, good[-1] ^ 1), changed(40, 7), now=now) == {"forged": 2}
    assert drops_of(receiver, changed(37, 1), now=now) == {"beyond": 1}
    assert drops_of(sender, good, now=now) == {"own": 1}
    assert drops_of(receiver, good, good, now=now) == {"duplicate": 1}
    assert receiver.got == [b"x"]


def test_other_secrets_and_clusters_are_strangers() -> None:
    receiver = Node(2)
    members = MembersChanged(CHANNEL, 1, (incarnation(1),), (receiver.me,))
    receiver.tell(members, 0.0)
    knows_no_secret, of_another_cluster = Node(1, secret=b"not the secret of this"), Node(1, cluster=CLUSTER + 1)
    for reason, imposter in (("forged", knows_no_secret), ("cluster", of_another_cluster)):
        imposter.tell(members, 0.0)
        assert drops_of(receiver, *[d for _, d in imposter.said], now=0.0) == {reason: len(imposter.said)}


def test_control_is_heard_once() -> None:
    bus = Bus()
    sender, receiver = bus.senders[0], bus.receivers[0]
    sender.send(b"x", now=bus.now)
    bus.now += 0.05
    sender.tell(DatagramsReceived([]), bus.now)
    bus.run(0.03)
    bus.change(bus.senders, bus.receivers)
    beats = [d for _, d in sender.said if kind_of(d) is Kind.HEARTBEAT]
    assert beats
    assert drops_of(receiver, beats[0], beats[0], now=bus.now) == {"replayed": 1}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_bytes_make_an_exception(data: st.DataObject) -> None:
    bus = Bus()
    sender, receiver = bus.senders[0], bus.receivers[0]
    sender.send(b"x" * 3_000, now=bus.now)
    genuine = data_of(sender)
    noise = []
    for _ in range(data.draw(st.integers(1, 5))):
        datagram = bytearray(data.draw(st.sampled_from(genuine)))
        for _ in range(data.draw(st.integers(0, 4))):
            datagram[data.draw(st.integers(0, 63))] = data.draw(st.integers(0, 255))
        noise.append(bytes(datagram[: data.draw(st.integers(0, len(datagram)))]))
        noise.append(data.draw(st.binary(max_size=100)))
    receiver.tell(DatagramsReceived(noise), bus.now)
    sender.tell(DatagramsReceived(noise), bus.now)
    bus.run(0.1)
    assert receiver.got == [b"x" * 3_000]


# -- where multicast does not reach ------------------------------------------------------------------------


def test_without_a_link_everything_is_carried() -> None:
    bus = Bus()
    sender = bus.senders[0]
    members = MembersChanged(CHANNEL, 9, (sender.me,), tuple(node.me for node in bus.receivers), link=5)
    for node in bus.nodes:
        node.tell(members, bus.now)
    sender.said.clear()
    sender.send(b"x", now=bus.now)
    assert {to for to, _ in sender.said} == {node.me for node in bus.receivers}
    bus.run(0.1)
    assert [node.got for node in bus.receivers] == [[b"x"]] * 2


def test_datagrams_are_carried_to_those_whom_multicast_does_not_reach() -> None:
    bus = Bus()
    sender, (near, far) = bus.senders[0], bus.receivers
    sender.tell(ReachChanged(far.me, 0, False), bus.now)
    sender.send(b"x", now=bus.now)
    assert [to for to, datagram in sender.said if kind_of(datagram) is Kind.DATA] == [None, far.me]
    sender.tell(ReachChanged(near.me, 0, False), bus.now)
    sender.said.clear()
    sender.send(b"y", now=bus.now)
    assert [to for to, datagram in sender.said if kind_of(datagram) is Kind.DATA] == [near.me, far.me]
    sender.tell(ReachChanged(near.me, 0, True), bus.now)
    sender.tell(ReachChanged(far.me, 0, True), bus.now)
    bus.run(0.1)
    assert near.got == far.got == [b"x", b"y"]
