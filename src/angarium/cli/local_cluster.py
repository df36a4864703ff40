"""A whole cluster on this machine: its nodes as processes, started together and stopped together."""
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from angarium.cli import failure

READY_S_MAX = 60.0
RESTART_AFTER_S = 3.0
_STOP_S_MAX = 15.0


@dataclass(slots=True)
class LocalNode:
    name: str
    config: Path
    process: "subprocess.Popen[bytes] | None" = None
    ended_at: float | None = None  # seen by `look_after`


class LocalCluster:
    """Groups a, b, c, … of `copies` nodes each, and client managers cm1, cm2, …; the first nodes vote. `together`: the
    client managers hold the copies themselves. With several buses each group is on one, client managers are on all."""

    def __init__(
        self, data: Path, base_port: int, *, client_managers: int, groups: int, copies: int,
        buses: int = 1, together: bool = False, settings: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        if buses > groups:
            reason = f"--buses {buses} with --groups {groups}: each group is on one bus, the rest is idle"
            raise failure.Failure(reason, failure.EXIT_USAGE)
        self.data = data
        self._base_port, self._copies = base_port, copies
        self._settings = settings  # more, by table, the same for every node
        self._host = "127.0.0.1"
        managers = [f"{'node' if together else 'cm'}{n + 1}" for n in range(client_managers)]
        members = {_letters(g): [f"{_letters(g)}{c + 1}" for c in range(copies)] for g in range(groups)}
        if together:
            members = dict.fromkeys(members, managers[:copies])
        names = list(dict.fromkeys([*managers, *(node for nodes in members.values() for node in nodes)]))
        self._link_ports = {name: base_port + len(managers) + at for at, name in enumerate(names)}
        self._client_ports = {name: base_port + at for at, name in enumerate(managers)}
        self.voters = _voters(managers, [node for nodes in members.values() for node in nodes if not together])
        self._groups = members
        self._bus_settings = _bus_settings(members, buses, base_port, base_port + len(managers) + len(names))
        self._buses = buses
        self.nodes = [LocalNode(name, data / name / "node.toml") for name in names]
        self.addresses = [f"angarium://{self._host}:{port}" for port in self._client_ports.values()]

    def check_same(self) -> None:
        """What lies there is of this cluster: another number of nodes, or other ports, would be another one."""
        found = found_shape(self.data)
        wanted = f"--cms {len(self._client_ports)} --groups {len(self._groups)} --copies {self._copies}"
        shape = f"{wanted}{_shown_buses(self._buses)} --base-port {self._base_port}"
        if found and found != shape:
            raise failure.Failure(
                f"{self.data} holds a cluster that was made with {found}; start it with these, or use another --data"
            )

    def check_free(self) -> None:
        """Before anything is written: what lies in the directory after a start that failed would be a cluster with
        these ports."""
        for path in (self.data, *self.data.parents):
            if path.exists() and not path.is_dir():
                raise failure.Failure(f"--data {self.data}: {path} is a file; name a directory")
        for port in (*self._client_ports.values(), *self._link_ports.values()):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self._host, port))
                except OSError as error:
                    taken = f"cannot listen on {self._host}:{port}: {error.strerror}"
                    if found_shape(self.data):
                        remedy = f"if it is the cluster of {self.data}, that runs already; else stop what has the port"
                    else:
                        remedy = "use another --base-port"
                    raise failure.Failure(f"{taken}; {remedy}") from None

    def write_configuration(self) -> None:
        """Kept from the first start on, so that a second one is the same cluster."""
        secret_file = self.data / "secret"
        self.data.mkdir(parents=True, exist_ok=True)
        if not secret_file.exists():
            secret_file.touch(mode=0o600)
            secret_file.write_text(secrets.token_urlsafe(24))
        secret = secret_file.read_text()
        for node in self.nodes:
            node.config.parent.mkdir(exist_ok=True)
            node.config.touch(mode=0o600)
            node.config.write_text(self._configuration(node.name, secret))

    def _configuration(self, name: str, secret: str) -> str:
        is_manager = name in self._client_ports
        listen = f"{self._host}:{self._client_ports.get(name, 0)}"
        voters = [f"{voter}={self._host}:{self._link_ports[voter]}" for voter in self.voters]
        groups = [f"{group}: {' '.join(nodes)}" for group, nodes in self._groups.items()]
        tables: dict[str, dict[str, object]] = {
            "node": {"name": name, "listen": listen, "data": str(self.data / name)},
            "cluster": {
                "name": self.data.resolve().name or "local",
                "secret": secret,
                "listen": f"{self._host}:{self._link_ports[name]}",
                "voters": voters,
                "groups": groups,
                "client_manager": is_manager,
                **self._bus_settings,
            },
        }
        for table, more in self._settings.items():
            tables[table] = {**tables.get(table, {}), **more}
        lines: list[str] = []
        for table, settings in tables.items():
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]
        return "\n".join(lines)

    def start(self, stop: threading.Event | None = None) -> bool:
        """Until all are ready; False if it is to stop before that."""
        for node in self.nodes:
            self.start_node(node)
        deadline = time.monotonic() + READY_S_MAX
        return all(self.await_ready(node, deadline, stop) for node in self.nodes)

    def start_node(self, node: LocalNode) -> None:
        node.ended_at = None
        log = (node.config.parent / "log").open("ab")
        node.process = subprocess.Popen(
            [sys.executable, "-m", "angarium.cli.main", "node", "--config", str(node.config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        log.close()

    def await_ready(self, node: LocalNode, deadline: float, stop: threading.Event | None = None) -> bool:
        assert node.process is not None
        stop = stop or threading.Event()
        ready = node.config.parent / "ready"
        while not ready.exists() or ready.read_text().strip() != str(node.process.pid):
            if node.process.poll() is not None:
                last = (node.config.parent / "log").read_text(errors="replace").strip().splitlines()[-1:]
                reason = "".join(last).removeprefix("angarium: ")
                raise failure.Failure(f"node {node.name} ended with {node.process.returncode}: {reason}")
            if time.monotonic() > deadline:
                raise failure.Failure(f"node {node.name} was not ready after {READY_S_MAX:g} s; see {ready.parent}/log")
            if stop.wait(0.05):
                return False
        return True

    def look_after(self, *, restart: bool) -> list[str]:
        """To be called again and again: starts what has ended a while ago, and says what happened."""
        told: list[str] = []
        for node in self.nodes:
            if node.process is None or (code := node.process.poll()) is None:
                continue
            if node.ended_at is None:
                node.ended_at = time.monotonic()
                told.append(f"node {node.name} has ended with {code}; its log is {node.config.parent / 'log'}")
            elif restart and time.monotonic() - node.ended_at >= RESTART_AFTER_S:
                self.start_node(node)
                told.append(f"node {node.name} is started again, as process {node.process.pid}")
        return told

    def stop(self) -> bool:
        """All at once; False if one had to be killed."""
        running = [node.process for node in self.nodes if node.process is not None and node.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        clean = True
        deadline = time.monotonic() + _STOP_S_MAX
        for process in running:
            try:
                # One that dies of the signal had not begun: a node that runs hears it, and finishes.
                clean = process.wait(max(0.1, deadline - time.monotonic())) in (0, -signal.SIGTERM) and clean
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                clean = False
        return clean


def found_shape(data: Path) -> str:
    """How a cluster that lies there was made, as options; empty if there is none."""
    try:
        files = [tomllib.loads(path.read_text()) for path in data.glob("*/node.toml")]
        managers = [file["node"]["listen"] for file in files if file["cluster"]["client_manager"]]
        if not managers:
            return ""
        groups = files[0]["cluster"]["groups"]
        copies = len(groups[0].partition(":")[2].split())
        base_port = min(int(listen.rpartition(":")[2]) for listen in managers)
    except (OSError, ValueError, KeyError, IndexError):
        return ""  # the nodes themselves will say what is wrong with it
    buses = _shown_buses(len(files[0]["cluster"].get("buses", [""])))
    return f"--cms {len(managers)} --groups {len(groups)} --copies {copies}{buses} --base-port {base_port}"


def _shown_buses(count: int) -> str:
    return f" --buses {count}" if count > 1 else ""


def _bus_settings(groups: Mapping[str, list[str]], count: int, number: int, port: int) -> dict[str, object]:
    """Each bus has a port of its own, from that one on. Groups take turns; who is in none is on all buses."""
    multicast_group = f"239.192.{number >> 8 & 255}.{number & 255}"
    if count == 1:
        return {"bus": f"{multicast_group}:{port}"}
    members = list(groups.values())
    on = {f"bus{n + 1}": " ".join(node for nodes in members[n::count] for node in nodes) for n in range(count)}
    return {
        "buses": [f"{bus}: {nodes}" for bus, nodes in on.items()],
        "bus_addresses": [f"{bus}={multicast_group}:{port + n}" for n, bus in enumerate(on)],
    }


def _letters(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"g{number}"


def _voters(managers: list[str], holders: list[str]) -> list[str]:
    """Three where there are three: holders first, those of the first group before others, then client managers."""
    candidates = [*holders, *managers]
    return candidates[:3] if len(candidates) >= 3 else candidates[:1]
