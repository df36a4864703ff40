"""Goal: datagrams leave as they are, however the kernel takes them. Method: real sockets on loopback, and one that
refuses."""
import errno
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from angarium.core.bus.datagram import INCARNATION_AT
from angarium.runtime.multicast import (
    BusLink,
    MulticastLink,
    SocketSettings,
    UdpSocket,
    _run_length,
    interface_of,
    mtu_of,
)
from tests.process.process_broker import free_port


@pytest.mark.parametrize("sizes, runs", (
    ([5], [1]), ([5, 5, 5], [3]), ([5, 5, 3, 3], [3, 1]), ([3, 5, 5], [1, 2]), ([1400] * 100, [46, 46, 8]),
    ([10] * 130, [64, 64, 2]), ([5, 0, 5], [2, 1]),
))  # fmt: skip
def test_runs_of_one_size_leave_together(sizes: list[int], runs: list[int]) -> None:
    datagrams, at, found = [bytes(size) for size in sizes], 0, []
    while at < len(datagrams):
        found.append(_run_length(datagrams, at))
        at += found[-1]
    assert found == runs


@pytest.fixture(params=(True, False), ids=("segmented", "one by one"))
def link(request: pytest.FixtureRequest) -> Iterator[MulticastLink]:
    settings = SocketSettings(segmentation=request.param)
    made = MulticastLink(BusLink("239.255.85.1", free_port(), "127.0.0.1"), settings, pytest.fail)
    yield made
    made.close()


def received(udp: UdpSocket, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count and select.select([udp.socket], [], [], 30.0)[0]:
        got += udp.receive()
    return got


def test_what_was_sent_arrives(link: MulticastLink) -> None:
    datagrams = [bytes([n]) * size for n, size in enumerate([1400] * 100 + [900, 20, 20, 1400, 64])]
    link.send(datagrams)
    assert received(link.receiver, len(datagrams)) == datagrams


def test_our_own_are_not_heard_and_all_others_are(link: MulticastLink) -> None:
    me, other = bytes(range(16)), bytes(range(15)) + b"?"
    link.ignore(me)
    mine, theirs = (bytes(INCARNATION_AT) + who + bytes(100) for who in (me, other))
    for said in ([mine], [theirs], [b"short"], [mine, mine, mine], [theirs]):
        link.send(said)
    assert received(link.receiver, 3) == [theirs, b"short", theirs]


def test_a_kernel_that_refuses_segments_gets_them_one_by_one() -> None:
    warnings: list[str] = []
    udp = UdpSocket(SocketSettings(), warnings.append)
    with closing(udp.socket):
        fake = _Refusing()
        udp.socket = fake  # type: ignore[assignment]
        udp.send([b"a" * 10] * 5 + [b"b"], ("127.0.0.1", 9))
        assert fake.sent == [b"a" * 10] * 5 + [b"b"] and len(warnings) == 1 and not udp.failures
        udp.send([b"c"] * 3, ("127.0.0.1", 9))
        assert fake.sent[6:] == [b"c"] * 3 and fake.refused == 1


class _Refusing:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.refused = 0

    def sendmsg(self, *arguments: Any) -> int:
        self.refused += 1
        raise OSError(errno.EIO, "no checksum offload")

    def sendto(self, data: bytes, address: Any) -> int:
        self.sent.append(data)
        return len(data)

    def close(self) -> None: ...


def test_small_buffers_are_told() -> None:
    warnings: list[str] = []
    settings = SocketSettings(receive_buffer_bytes=4_096)
    MulticastLink(BusLink("239.255.85.1", free_port(), "127.0.0.1"), settings, warnings.append).close()
    assert len(warnings) == 1 and "raise net.core.rmem_max" in warnings[0]


def test_interfaces_are_named_or_addressed() -> None:
    assert interface_of("127.0.0.1") == (socket.inet_aton("127.0.0.1"), 0)
    assert interface_of("lo") == (bytes(4), socket.if_nametoindex("lo"))
    with pytest.raises(OSError):
        interface_of("no-such-if")
    assert struct.calcsize("=4s4si") == 12


def test_the_longest_packet_of_an_interface_is_asked_of_the_system() -> None:
    assert mtu_of("lo") == mtu_of("127.0.0.1") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert mtu_of("no-such-interface") == 0


def test_a_link_that_is_not_heard_brings_nothing(link: MulticastLink) -> None:
    def said(word: bytes) -> list[bytes]:
        link.send([word])
        link.sender.send([b"to all"], every)
        got = received(everybody, 1)
        assert got == [b"to all"]  # on loopback what was sent before it has arrived by then
        return link.receiver.receive()

    everybody, port = UdpSocket(SocketSettings(), pytest.fail), free_port()
    with closing(everybody.socket):
        everybody.socket.bind(("127.0.0.1", port))
        every = ("127.0.0.1", port)
        assert said(b"one") == [b"one"]
        link.hear(False)
        assert said(b"two") == []
        link.refresh()
        assert said(b"three") == []
        link.hear(True)
        assert said(b"four") == [b"four"]


def test_a_link_behind_another_does_not_repeat_its_warnings() -> None:
    warnings: list[str] = []
    settings = SocketSettings(receive_buffer_bytes=4_096)
    link = BusLink("239.255.85.1", free_port(), "no-such-if", hears=False)
    MulticastLink(link, settings, warnings.append).close()
    assert warnings == []
