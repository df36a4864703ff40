"""Bus nodes in processes of their own, on loopback or in network namespaces."""
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

WAIT_S_MAX = 60.0
CHANNEL = 1


class BusProcess:
    def __init__(
        self, number: int, links: dict[int, tuple[str, int, str]], *, host: str = "127.0.0.1",
        prefix: Sequence[str] = (), **options: Any,
    ) -> None:  # fmt: skip
        self.incarnation = number.to_bytes(16, "big").hex()
        self.host = host
        self.links = links
        arguments = {"incarnation": self.incarnation, "name": f"node-{number}", "links": links, "host": host, **options}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.process.bus_program", json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.port = int(self._answer()["port"])

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"node {self.incarnation[-4:]} ended with {self.process.wait()}")
        return cast(dict[str, Any], json.loads(line))

    def ask(self, do: str = "status", **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        status = self._answer()
        assert not status.get("wrong"), status["wrong"]
        return status

    def at(self, sender: "BusProcess", channel: int = CHANNEL) -> int:
        """The number of the sender's next message here; 0 if its stream is not open."""
        return int(self.ask()["streams"].get(f"{channel} {sender.incarnation}", 0))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class BusCluster:
    """Nodes, and whatever view they are told."""

    def __init__(self) -> None:
        self.nodes: list[BusProcess] = []
        self.view = 0

    def start(self, number: int, links: dict[int, tuple[str, int, str]], **options: Any) -> BusProcess:
        node = BusProcess(number, links, **options)
        for other in self.nodes:
            node.ask("dial", host=other.host, port=other.port)
        self.nodes.append(node)
        return node

    def wait_linked(self, nodes: Sequence[BusProcess] | None = None) -> None:
        nodes = nodes or self.nodes
        wait_until(lambda: all(len(node.ask()["neighbours"]) == len(nodes) - 1 for node in nodes), "all are linked")

    def change(
        self, senders: Sequence[BusProcess], receivers: Sequence[BusProcess], *, channel: int = CHANNEL,
        links: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.view += 1
        for node in self.nodes:
            node.ask(
                "members", channel=channel, view=self.view, senders=[s.incarnation for s in senders],
                receivers=[r.incarnation for r in receivers], link=(links or {}).get(node.incarnation, 0),
            )  # fmt: skip

    def end(self) -> None:
        for node in self.nodes:
            node.end()


def wait_until(is_so: Callable[[], bool], what: str, seconds_max: float = WAIT_S_MAX) -> float:
    """How long it took."""
    start = time.monotonic()
    while not is_so():
        if time.monotonic() - start > seconds_max:
            raise AssertionError(f"not within {seconds_max:g} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - start


def all_at(
    receivers: Sequence[BusProcess], sender: BusProcess, number: int, channel: int = CHANNEL
) -> Callable[[], bool]:
    return lambda: all(receiver.at(sender, channel) == number for receiver in receivers)
