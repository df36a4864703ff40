"""A real broker in a process of its own, to be killed, stopped, paused and started again on the same port and data.

Settings travel as environment variables: `running(path, {"session.heartbeat_s": 0.3})`. Standard error goes to a file,
so that a test can look for log lines. Ports come from below the range that the system hands out by itself, and from a
part that no other process of tests draws from: a broker that was killed finds its port free again.
"""
import asyncio
import fcntl
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tests.process.cli_forks import Forked, run_forked

COMMAND = [sys.executable, "-m", "angarium.cli.main"]
WAIT_S = 60.0  # what takes longer has failed; a machine may be very busy
POLL_S = 0.01
MIB = 1 << 20
# Small segments: quick to create, and full often enough that checkpoints run in every test.
SEGMENT_BYTES = 4 * MIB
_PORTS, _PORTS_OF_ONE = range(10_000, 32_000), 200
_ports_given = 0  # since the first of ours was

Settings = Mapping[str, object]  # by "table.key"; None leaves the broker's own default


def environment(settings: Settings = MappingProxyType({})) -> dict[str, str]:
    unwanted = ("ANGARIUM_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    given = {
        f"ANGARIUM_{key.replace('.', '__').upper()}": str(value) for key, value in settings.items() if value is not None
    }
    return kept | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"} | given


def free_port(count: int = 1) -> int:
    """The first of so many in a row that nobody listens at; all others come first before one comes again."""
    global _ports_given
    ports = _own_ports()
    for _ in range(len(ports)):
        if _ports_given + count > len(ports):
            _ports_given = 0
        port = ports[_ports_given]
        _ports_given += count
        if all(map(_is_free, range(port, port + count))):
            return port
    raise AssertionError(f"none of {ports} is free")


@cache
def _own_ports() -> range:
    """Those that this process alone draws from, as long as it runs, of all that run tests on this machine."""
    blocks = list(range(_PORTS.start, _PORTS.stop, _PORTS_OF_ONE))
    random.SystemRandom().shuffle(blocks)
    for first in blocks:
        with suppress(OSError):
            lock = os.open(Path(tempfile.gettempdir()) / f"angarium-test-ports-{first}", os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
            return range(first, first + _PORTS_OF_ONE)
    raise AssertionError(f"others have all {len(blocks)} blocks of ports")


def _is_free(port: int) -> bool:
    """Nobody listens there. That the system remembers connections which have ended hinders no listener."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(POLL_S)


async def until_async(
    condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float = WAIT_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(POLL_S)


class Broker:
    def __init__(
        self, data: Path, log: Path, settings: Settings, command_prefix: Sequence[str] = (), host: str = "127.0.0.1"
    ) -> None:
        self.data = data
        self.port = free_port()
        self.address = f"angarium://{host}:{self.port}"
        self.greeting = ""
        self._log = log
        self._settings = settings
        self._arguments = ("up", "--data", str(data), "--listen", f"{host}:{self.port}", "--name", "test")
        self._command_prefix = command_prefix
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self._command_prefix:
            self.start_unwatched()
        else:
            self._start_forked()
        self.greeting = self._first_line()
        assert "ready" in self.greeting, f"the broker did not start: {self.greeting!r}\n{self.log()[-2000:]}"

    def start_unwatched(self) -> None:
        """Start from nothing, and do not wait until it is ready."""
        assert not self.is_running
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command_prefix, *COMMAND, *self._arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, text=True, env=environment(self._settings),
            )  # fmt: skip

    def _start_forked(self) -> None:
        assert not self.is_running
        with self._log.open("ab") as log:
            self._process = Forked(self._arguments, environment(self._settings), output=None, errors=log)

    def die_after(self, seconds: float) -> None:
        """kill -9 at that time of its life, wherever it has come by then."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(WAIT_S), f"not ready within {WAIT_S:g} s\n{self.log()[-2000:]}"
        return self.process.stdout.readline()

    def kill(self) -> None:
        """As the kernel does it: no warning, no clean-up."""
        self.process.kill()
        self.process.wait(WAIT_S)
        self._close_output()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(WAIT_S)
        self._close_output()
        return status

    def _close_output(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    async def restart_after_kill(self) -> None:
        """kill -9 at this very moment; ready again when this returns."""
        self.process.kill()
        await asyncio.to_thread(self.kill)
        await asyncio.to_thread(self.start)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def until_logged(self, *texts: str) -> None:
        """A thread of the broker's writes its log: what has happened is told there a little later."""
        until(lambda: all(text in self.log() for text in texts), f"{texts} in the log")

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def cpu_s(self) -> float:
        """What it has used of the processors: the same on a busy machine as on an idle one."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the command line against this broker."""
        done = run_forked(arguments, b"", environment({"address": self.address}), WAIT_S)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmRSS: it has ended")


class RssWatch:
    """The highest resident size of a process, sampled in a thread."""

    def __init__(self, pid: int) -> None:
        self.highest_bytes = self.first_bytes = rss_bytes(pid)
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "RssWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            try:
                self.highest_bytes = max(self.highest_bytes, rss_bytes(self._pid))
            except (OSError, AssertionError):
                return  # the process has ended


@contextmanager
def running(
    directory: Path,
    settings: Settings = MappingProxyType({}),
    *,
    data: Path | None = None,
    command_prefix: Sequence[str] = (),  # what starts the broker in its stead, and becomes it
    host: str = "127.0.0.1",  # where it listens
) -> Iterator[Broker]:
    """A broker that was ready; whatever is left of it at the end is killed, and its data removed."""
    chosen = {"store.segment_bytes": SEGMENT_BYTES, **settings}
    broker = Broker(data or directory / "data", directory / "broker.log", chosen, command_prefix, host)
    try:
        broker.start()
        yield broker
    finally:
        if broker.is_running:
            broker.go_on()
            broker.kill()
        shutil.rmtree(broker.data, ignore_errors=True)
