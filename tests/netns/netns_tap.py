"""Bytes of data and of repairs, as they pass a host's port of the bridge; and how many repairs may be."""
import json
import subprocess
import sys

from angarium.core.bus.events import BusSettings
from tests.netns.netns_hosts import Hosts


class Tap:
    """Counts what passes there, or only what that host has sent. A burst is taken for one datagram: see
    `Hosts.one_by_one`."""

    def __init__(self, hosts: Hosts, number: int, *, is_sent_only: bool = False) -> None:
        command = ["ip", "netns", "exec", hosts.hub, sys.executable, "-m", "tests.netns.bus_tap", f"port{number}x0"]
        command += ["sent"] if is_sent_only else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.ahead = 0  # once it has ended: how far repairs of a stream were ahead of data and time, at most

    def totals(self) -> tuple[int, int]:
        """Data and repairs; it ends."""
        out, _ = self._process.communicate(timeout=20)
        totals = json.loads(out)
        self.ahead = totals["ahead"]
        return totals["data"], totals["repairs"]

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)


# What repairs of a stream may be ahead of a tenth of its data and 2 MiB a second, in any stretch of time: the constant
# of docs/protocol/bus.md, and what that rate gives in 30 ms, by which a busy machine may send one part too late.
AHEAD_BYTES_MAX = BusSettings().repair_bytes_burst + BusSettings().repair_bytes_per_s * 3 // 100


def allowed_bytes(data: int, lossy_s: float, streams: int = 1) -> float:
    """Of repairs: docs/protocol/bus.md. `lossy_s`: how long the network has lost something."""
    settings = BusSettings()
    constant = settings.repair_bytes_burst + settings.repair_bytes_per_s * lossy_s
    return settings.repair_share_max * data + streams * constant
