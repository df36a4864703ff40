"""Goal: whom multicast does not reach is found out and carried to, and only as long as that is so."""
from angarium.core.bus.datagram import Kind
from angarium.core.bus.events import (
    BusSettings,
    DatagramsReceived,
    MembersChanged,
    NeighbourFound,
    NeighbourLost,
    ReportReceived,
    SendReport,
    Tick,
)
from angarium.core.bus.routes import UNICAST
from tests.unit.bus.bus_pair import CHANNEL, Node, incarnation, kind_of

ME, OTHER, THIRD = incarnation(1), incarnation(2), incarnation(3)


def probes(node: Node) -> list[bytes]:
    return [datagram for _, datagram in node.said if kind_of(datagram) is Kind.PROBE]


def reports(node: Node) -> list[SendReport]:
    return [command for command in node.told if isinstance(command, SendReport)]


def sender() -> Node:
    node = Node(1)
    node.tell(NeighbourFound(OTHER), 0.0)
    node.tell(NeighbourFound(THIRD), 0.0)
    node.tell(MembersChanged(CHANNEL, 1, (ME,), (OTHER, THIRD)), 0.0)
    node.said.clear()
    return node


def beats_to(node: Node, now: float) -> list[bytes | None]:
    """To whom the next heartbeat goes."""
    node.said.clear()
    node.tell(MembersChanged(CHANNEL, node.machine.channels[CHANNEL].view + 1, (ME,), (OTHER, THIRD)), now)
    return [to for to, datagram in node.said if kind_of(datagram) is Kind.HEARTBEAT]


def test_nothing_is_assumed_before_the_first_report() -> None:
    assert beats_to(sender(), 0.1) == [OTHER, THIRD]


def test_a_report_decides_for_its_author_alone() -> None:
    node = sender()
    node.tell(ReportReceived(OTHER, (0, UNICAST)), 0.1)
    assert beats_to(node, 0.1) == [None, THIRD]
    node.tell(ReportReceived(THIRD, (0,)), 0.2)
    assert beats_to(node, 0.2) == [None]
    node.tell(ReportReceived(OTHER, ()), 0.3)
    assert beats_to(node, 0.3) == [None, OTHER]


def test_where_there_is_nothing_to_carry_it_multicast_has_to_do() -> None:
    node = sender()
    node.tell(NeighbourLost(OTHER), 0.1)
    node.tell(NeighbourLost(THIRD), 0.1)
    assert beats_to(node, 0.1) == [None]
    node.tell(ReportReceived(OTHER, ()), 0.2)  # late
    assert beats_to(node, 0.2) == [None]


def test_what_is_heard_is_reported_at_once_and_what_is_no_longer_heard_after_a_while() -> None:
    node, other = Node(1), Node(2)
    node.tell(NeighbourFound(OTHER), 0.0)
    other.tell(NeighbourFound(ME), 0.0)
    on_the_link, to_the_port = probes(other)
    node.told.clear()
    node.tell(DatagramsReceived([on_the_link]), 0.01)
    assert reports(node) == [SendReport(OTHER, (0,))]
    node.tell(DatagramsReceived([to_the_port, to_the_port]), 0.02)
    assert reports(node)[1:] == [SendReport(OTHER, (UNICAST, 0))]
    assert node.drops == {"replayed": 1}
    node.tell(Tick(), 1.0)
    assert reports(node)[2:] == [SendReport(OTHER, (UNICAST, 0))]
    node.tell(Tick(), 2.5)
    assert reports(node)[3:] == [SendReport(OTHER, ())]


def test_probes_go_out_in_every_period_while_there_are_neighbours() -> None:
    node = Node(1)
    assert node.machine.deadline() is None
    node.tell(NeighbourFound(OTHER), 0.0)
    assert len(probes(node)) == 2 and node.machine.deadline() == 0.5
    node.tell(Tick(), 0.5)
    assert len(probes(node)) == 4 and node.machine.deadline() == 1.0
    node.tell(NeighbourLost(OTHER), 0.6)
    assert node.machine.deadline() is None


def test_probes_of_strangers_are_dropped() -> None:
    node, stranger, forger = Node(1), Node(3), Node(2, secret=b"not the secret of this")
    node.tell(NeighbourFound(OTHER), 0.0)
    for liar in (stranger, forger):
        liar.tell(NeighbourFound(ME), 0.0)
        node.tell(DatagramsReceived(probes(liar)), 0.1)
    assert node.drops == {"stranger": 2, "forged": 2}


def test_a_probe_of_a_link_is_as_long_as_the_longest_datagram() -> None:
    """A neighbour whose interface takes less does not hear it, and is carried to."""
    node = sender()
    node.tell(Tick(), 0.5)
    on_the_link, *to_ports = probes(node)
    assert len(on_the_link) == BusSettings().datagram_bytes_max
    assert all(len(datagram) < 100 for datagram in to_ports)


def test_where_longer_datagrams_are_taken_there_are_fewer() -> None:
    usual = BusSettings()
    assert usual.fitted(0) is usual and usual.fitted(1_500) is usual
    jumbo = usual.fitted(9_000)
    assert jumbo.datagram_bytes_max == usual.fitted(65_536).datagram_bytes_max == 8_900
    for name in ("window_datagrams", "ring_datagrams_max", "ack_every_datagrams", "progress_datagrams_min"):
        before = getattr(usual, name) * usual.datagram_bytes_max
        assert 0.8 * before < getattr(jumbo, name) * jumbo.datagram_bytes_max <= before, name
