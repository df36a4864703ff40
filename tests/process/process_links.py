"""What the kernel has counted on the links between nodes: who has received how many bytes from whom."""
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping

_SOCKET = re.compile(r"^\d+ +\d+ +(\S+) +(\S+) +users:\(\(.*?pid=(\d+)")
_RECEIVED = re.compile(r"bytes_received:(\d+)")


def why_not() -> str:
    """Why nothing can be read here; empty if it can."""
    return "" if shutil.which("ss") else "not installed: ss (Debian: iproute2)"


def received_bytes(pids: Mapping[str, int], receiver: str) -> Counter[str]:
    """By that node, over links that are open now, by the name of the node that has sent them."""
    command = ["ss", "--tcp", "--info", "--processes", "--numeric", "--no-header", "state", "established"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.splitlines()
    names = {pid: name for name, pid in pids.items()}
    owners: dict[str, str] = {}  # by the address of their end
    ends: list[tuple[str, int]] = []  # of the receiver's links: the other one's address, bytes
    for socket_line, info_line in zip(lines[::2], lines[1::2], strict=True):
        found = _SOCKET.match(socket_line)
        name = names.get(int(found[3])) if found else None
        if found is None or name is None:
            continue
        owners[found[1]] = name
        if name == receiver:
            counted = _RECEIVED.search(info_line)
            ends.append((found[2], int(counted[1]) if counted else 0))
    totals: Counter[str] = Counter()
    for address, count in ends:
        if address in owners:
            totals[owners[address]] += count
    return totals
