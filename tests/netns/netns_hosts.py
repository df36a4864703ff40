"""Hosts in network namespaces on one bridge, or on several; losses by nftables. Nothing outside them is touched.

The bridges are in a namespace of their own (`hub`), one for each network; a host's interfaces are `eth0`, `eth1`, …,
their peers in the hub are named for host and network. `end` deletes the namespaces, and with them everything in them.
"""
import ctypes
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

GROUP = "239.255.90.1"
BUS = "239.255.90.0/24"  # with the groups behind it
_CLONE_NEWNET = 0x40000000
_numbers = itertools.count(1)


def why_not() -> str:
    """Why namespaces cannot be had here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: iproute2, nftables)"
    tried = subprocess.run(["ip", "netns", "add", f"agprobe{os.getpid()}"], capture_output=True, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", f"agprobe{os.getpid()}"], capture_output=True, check=False)
    return ""


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


def sweep() -> None:
    """Delete what runs that were killed have left: their process is in the name."""
    for name in run("ip", "netns", "list").split():
        left = re.fullmatch(r"ag(\d+)x\d+(hub|h\d+)", name)
        if left and not Path(f"/proc/{left[1]}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def enter(namespace: str) -> None:
    """This thread; sockets that it makes are in the namespace from then on, whoever uses them."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    try:
        if library.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
    finally:
        os.close(descriptor)


class Hosts:
    def __init__(self, count: int, networks: int = 1) -> None:
        sweep()
        self._prefix = f"ag{os.getpid()}x{next(_numbers)}"
        self.hub = f"{self._prefix}hub"
        self.addresses = [f"10.77.0.{n + 1}" for n in range(count)]
        self._made: list[str] = []
        try:
            self._namespace(self.hub)
            for network in range(networks):
                bridge = f"br{network}"
                self.inside(self.hub, "ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
                self.inside(self.hub, "ip", "link", "set", bridge, "up")
            for number in range(count):
                self._namespace(self.name(number))
                for network in range(networks):
                    self.plug_in(number, network)
        except BaseException:
            self.end()
            raise

    def name(self, number: int) -> str:
        return f"{self._prefix}h{number}"

    def prefix(self, number: int) -> Sequence[str]:
        return ("ip", "netns", "exec", self.name(number))

    def _namespace(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._made.append(name)
        self.inside(name, "ip", "link", "set", "lo", "up")

    def inside(self, name: str, *command: str) -> str:
        return run("ip", "netns", "exec", name, *command)

    def on(self, number: int, *command: str) -> str:
        return self.inside(self.name(number), *command)

    def plug_in(self, number: int, network: int = 0) -> None:
        """A new interface, with the host's address there."""
        peer, interface = f"port{number}x{network}", f"eth{network}"
        other_end = ("peer", "name", interface, "netns", self.name(number))
        self.inside(self.hub, "ip", "link", "add", peer, "type", "veth", *other_end)
        self.inside(self.hub, "ip", "link", "set", peer, "master", f"br{network}", "up")
        self.on(number, "ip", "address", "add", f"10.{77 + network}.0.{number + 1}/24", "dev", interface)
        self.on(number, "ip", "link", "set", interface, "up")

    def pull_out(self, number: int, network: int = 0) -> None:
        self.inside(self.hub, "ip", "link", "del", f"port{number}x{network}")

    def one_by_one(self, number: int, network: int = 0) -> None:
        """What the host sends in bursts passes its interface as single packets, as it would on a real wire."""
        self.on(number, "ip", "link", "set", f"eth{network}", "gso_max_segs", "1")

    def lose(self, number: int, what: str) -> None:
        """Packets that arrive at that host and fit the rule are dropped; an earlier rule is replaced."""
        self.heal(number)
        self.on(number, "nft", "add table inet loss")
        self.on(number, "nft", "add chain inet loss arriving { type filter hook input priority 0 ; }")
        self.on(number, "nft", f"add rule inet loss arriving {what} counter drop")

    def lose_multicast(self, number: int, percent: int) -> None:
        self.lose(number, f"ip daddr {BUS} numgen random mod 100 < {percent}")

    def heal(self, number: int) -> None:
        self.on(number, "nft", "add table inet loss")  # so that there is one to delete
        self.on(number, "nft", "delete table inet loss")

    def end(self) -> None:
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self._made.clear()
