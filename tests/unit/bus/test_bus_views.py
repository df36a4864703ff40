"""Goal: who is put out, who joins, and how a stream ends. Method: nodes joined by hand; some are cut off or die."""

from dataclasses import replace

import pytest

from angarium.core.bus.events import (
    ChannelBlocked,
    ChannelUnblocked,
    DatagramsReceived,
    Evicted,
    MembersChanged,
    Rejoin,
    StreamEnded,
    StreamLost,
    StreamStarted,
)
from angarium.core.errors import LocalProtocolError
from tests.unit.bus.bus_pair import CHANNEL, SMALL, Bus, Node, data_of, header_of

# -- eviction ----------------------------------------------------------------------------------------------


def cut_off(bus: Bus, node: Node, seconds: float) -> None:
    """It neither hears nor says anything, while the others go on."""
    bus.nodes.remove(node)
    bus.run(seconds)
    bus.nodes.append(node)


def test_who_holds_up_others_is_put_out_told_and_may_come_back() -> None:
    bus = Bus(settings=SMALL)
    sender, (good, slow) = bus.senders[0], bus.receivers
    sender.send(*[b"x" * 1_300] * 9, now=bus.now)
    cut_off(bus, slow, 0.7)
    assert Evicted(CHANNEL, slow.me) in sender.told and sender.told[-1] == ChannelUnblocked(CHANNEL)
    assert len(good.got) == 9
    bus.run(1.2)
    lost = [command for command in slow.told if isinstance(command, StreamLost)]
    assert [(command.sender, command.number) for command in lost] == [(sender.me, len(slow.got) + 1)]
    slow.tell(Rejoin(CHANNEL, sender.me), bus.now)
    bus.run(0.1)
    sender.send(b"after", now=bus.now)
    bus.run(0.1)
    assert slow.told[-2:-1] == [StreamStarted(CHANNEL, sender.me, 10)] and slow.got[-1] == b"after"
    assert [command for command in sender.told if isinstance(command, Evicted)] == [Evicted(CHANNEL, slow.me)]


def test_where_all_are_behind_nobody_is_put_out() -> None:
    bus = Bus(settings=SMALL)
    sender = bus.senders[0]
    sender.send(*[b"x" * 1_300] * 9, now=bus.now)
    sender.said.clear()
    bus.nodes = [sender]
    bus.run(2.0)
    sender.said.clear()
    bus.nodes = [sender, *bus.receivers]
    bus.run(1.0)
    assert [len(receiver.got) for receiver in bus.receivers] == [9, 9]


# -- views -------------------------------------------------------------------------------------------------


def test_a_new_receiver_begins_at_a_message_and_gets_all_from_there() -> None:
    bus = Bus(receivers=2)
    sender, (old, new) = bus.senders[0], bus.receivers
    bus.change([sender], [old])
    sender.send(b"before", now=bus.now)
    bus.run(0.05)
    bus.change([sender], [old, new])
    sender.send(b"after", now=bus.now)
    bus.run(0.1)
    assert old.got == [b"before", b"after"]
    assert new.got == [b"after"] and StreamStarted(CHANNEL, sender.me, 2) in new.told


@pytest.mark.parametrize("hears_of_both", (True, False), ids=("the sender jumps", "the receiver jumps"))
def test_a_receiver_that_was_out_for_a_moment_begins_anew(hears_of_both: bool) -> None:
    """One of the two never hears of the view between: they must not go on as if nothing had happened, nor wait."""
    bus = Bus(receivers=1, settings=SMALL)
    sender, receiver = bus.senders[0], bus.receivers[0]
    sender.send(*[b"x" * 1_300] * 12, now=bus.now)
    sender.said.clear()  # the ring is full, half of it has not left
    bus.change([sender], [], tell=[receiver if hears_of_both else sender])
    bus.change([sender], [receiver])
    bus.run(0.3)
    if not hears_of_both:
        assert any(isinstance(command, StreamLost) for command in receiver.told)
        receiver.tell(Rejoin(CHANNEL, sender.me), bus.now)
        bus.run(0.1)
    sender.send(b"after", now=bus.now)
    bus.run(0.1)
    assert receiver.got == [b"after"] and receiver.told[-2] == StreamStarted(CHANNEL, sender.me, 13)


def test_a_receiver_that_got_nothing_yet_decides_no_end() -> None:
    """It was to begin behind messages that had not left when their sender died."""
    bus = Bus(receivers=2, settings=SMALL)
    sender, (old, new) = bus.senders[0], bus.receivers
    bus.change([sender], [old])
    bus.run(0.05)
    sender.send(*[b"x" * 1_300] * 12, now=bus.now)
    old.tell(DatagramsReceived(data_of(sender)), bus.now)
    bus.change([sender], [old, new])
    bus.nodes = [old, new]
    join = [datagram for _, datagram in new.said]
    sender.said.clear()
    sender.tell(DatagramsReceived(join), bus.now)
    new.tell(DatagramsReceived([datagram for _, datagram in sender.said]), bus.now)
    assert StreamStarted(CHANNEL, sender.me, 13) in new.told
    old.said.clear()
    bus.change([], [old, new])
    bus.run(0.3)
    assert len(old.got) == 6 and old.told[-1] == StreamEnded(CHANNEL, sender.me, 7)
    assert new.got == [] and new.told[-1] == StreamEnded(CHANNEL, sender.me, 13)


def test_what_a_dead_sender_told_one_survivor_reaches_all() -> None:
    bus = Bus(receivers=3)
    sender, receivers = bus.senders[0], bus.receivers
    sender.send(b"x" * 4_000, b"y", now=bus.now)
    said = data_of(sender)
    receivers[1].tell(DatagramsReceived(said), bus.now)
    receivers[2].tell(DatagramsReceived(said[:1]), bus.now)
    bus.nodes = receivers
    for node in receivers:
        node.said.clear()
    bus.change([], receivers)
    bus.run(0.3)
    assert [receiver.got for receiver in receivers] == [[b"x" * 4_000, b"y"]] * 3
    assert all(StreamEnded(CHANNEL, sender.me, 3) in receiver.told for receiver in receivers)
    forwarded = [receiver.machine.counters.repair_datagrams for receiver in receivers]
    assert forwarded == [0, 2 * len(said) - 1, 0], "one forwarder, and nothing that was not missing"
    assert not any(receiver.machine.channels[CHANNEL].closings for receiver in receivers)


def test_half_a_message_of_a_dead_sender_is_nobodys() -> None:
    bus = Bus()
    sender, receivers = bus.senders[0], bus.receivers
    sender.send(b"x" * 4_000, now=bus.now)
    receivers[0].tell(DatagramsReceived(data_of(sender)[:2]), bus.now)
    bus.nodes = receivers
    bus.change([], receivers)
    bus.run(0.3)
    assert [receiver.got for receiver in receivers] == [[], []]
    assert all(StreamEnded(CHANNEL, sender.me, 1) in receiver.told for receiver in receivers)


def test_ends_that_nobody_agrees_on_have_a_maximum() -> None:
    bus = Bus(senders=3, receivers=2, settings=replace(SMALL, members_max=3))
    senders, lonely = bus.senders, bus.receivers[0]
    newcomers = [Node(number, replace(SMALL, members_max=3)) for number in (10, 11, 12)]
    bus.nodes = [*senders, lonely]
    bus.change([], bus.receivers, tell=[lonely])
    assert len(lonely.machine.channels[CHANNEL].closings) == 3
    bus.nodes = [*newcomers, lonely]
    bus.change(newcomers, bus.receivers)
    bus.run(0.1)
    lonely.told.clear()
    bus.change([], bus.receivers, tell=[lonely])
    assert len(lonely.machine.channels[CHANNEL].closings) == 3
    assert [c.sender for c in lonely.told if isinstance(c, StreamLost)] == [sender.me for sender in senders]


def test_what_is_sent_to_nobody_is_counted() -> None:
    bus = Bus()
    sender = bus.senders[0]
    bus.change([sender], [])
    sender.send(b"x", b"y", now=bus.now)
    assert sender.machine.counters.unheard_messages == 2 and sender.machine.number_next(CHANNEL) == 3


def test_an_older_view_is_ignored() -> None:
    bus = Bus()
    node = bus.receivers[0]
    node.tell(MembersChanged(CHANNEL, bus.view, (), ()), bus.now)
    assert CHANNEL in node.machine.channels
    bus.senders[0].send(b"x", now=bus.now)
    bus.run(0.05)
    assert node.got == [b"x"]


def test_a_channel_that_is_opened_again_repeats_no_sequence() -> None:
    bus = Bus(receivers=1)
    sender = bus.senders[0]
    sender.send(b"first", now=bus.now)
    first = header_of(data_of(sender)[0]).sequence
    bus.run(0.05)
    bus.change([], [])
    bus.change([sender], bus.receivers)
    bus.run(0.1)
    sender.send(b"second", now=bus.now)
    assert header_of(data_of(sender)[0]).sequence > first
    bus.run(0.1)
    assert bus.receivers[0].got == [b"first", b"second"]


def test_who_may_send_no_more_waits_for_nothing() -> None:
    bus = Bus(settings=SMALL)
    sender = bus.senders[0]
    sender.send(*[b"x" * 1_300] * 9, now=bus.now)
    assert sender.told == [ChannelBlocked(CHANNEL)]
    bus.change([], bus.receivers)
    assert sender.told[1:] == [ChannelUnblocked(CHANNEL)]
    with pytest.raises(LocalProtocolError, match="none of its senders"):
        sender.send(b"x", now=bus.now)
