"""Is the host at the other end of a TCP connection still there? Its kernel is asked, and never its application.

A host is gone when it has acknowledged nothing for `silence_s_max`, and was asked all the while. Our kernel does
that, and how depends on the connection:

    idle                           keep-alive probes; unanswered, the kernel gives the connection up by itself
    something is under way         the same again and again, for a quarter of an hour
    the other side takes no more   probes of its window: answered also for an application that is stopped

What is under way, or waits for the window, is what the kernel is patient about; there its figures are looked at here.
`TCP_USER_TIMEOUT` will not do: it also counts the time for which probes of a closed window are answered, and cuts off
whoever does not read for so long. Repetitions and probes come ever more seldom, up to two minutes apart, which
`TCP_RTO_MAX_MS` forbids from Linux 6.15 on; before that a host that goes while its window is closed is missed after
some minutes only.
"""
import contextlib
import socket
import struct

_RTO_MAX_MS = 44  # TCP_RTO_MAX_MS of linux/tcp.h; Python has no name for it
_RTO_MS_RANGE = (1_000, 120_000)  # that it takes
_IDLE_S_MAX = 32_767  # that TCP_KEEPIDLE and TCP_KEEPINTVL take
_PROBES_MAX = 3  # unanswered
_REPETITIONS_MIN = 2  # what was sent a moment ago, after a pause of ours, is not yet unanswered
# struct tcp_info of linux/tcp.h: tcpi_retransmits, tcpi_probes, tcpi_unacked, tcpi_last_ack_recv, tcpi_snd_wnd
_INFO = struct.Struct("=2xBB20xI28xI168xI")


def watch_over(sock: socket.socket, silence_s_max: float) -> None:
    """Have the kernel ask often enough."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_s = min(max(1, int(silence_s_max / 3)), _IDLE_S_MAX)
    options = {"TCP_KEEPIDLE": idle_s, "TCP_KEEPINTVL": max(1, idle_s // 2), "TCP_KEEPCNT": _PROBES_MAX}
    for option, value in options.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_INFO"):
        least_ms, most_ms = _RTO_MS_RANGE
        with contextlib.suppress(OSError):  # an older kernel
            sock.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, int(min(max(idle_s * 1_000, least_ms), most_ms)))


def is_gone(sock: socket.socket, silence_s_max: float) -> bool:
    if not hasattr(socket, "TCP_INFO"):
        return False
    return says_gone(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size), silence_s_max)


def says_gone(info: bytes, silence_s_max: float) -> bool:
    """What the kernel's figures mean."""
    if len(info) < _INFO.size:  # an older kernel: it decides by itself
        return False
    repetitions, probes, unacknowledged, silence_ms, window = _INFO.unpack(info)
    if silence_ms < silence_s_max * 1_000:
        return False
    return bool(unacknowledged and window and repetitions >= _REPETITIONS_MIN) or probes >= _PROBES_MAX
