"""Brokers and roles as processes of their own: started here, measured through /proc, ended by their process id.

Every process that this module starts is ended by it, also when a case fails: use `Broker` and `Role` as context
managers. Nothing waits without a limit.
"""
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READY_S_MAX = 60.0  # of a broker or a role, from its start to its word that it is ready
STOP_S_MAX = 10.0  # of a broker, from SIGTERM to its end; then SIGKILL
POLL_S = 0.005
LOG_TAIL_BYTES = 2_000


class BenchmarkFailed(Exception):
    """A process did not do what the measurement needs; the message says which and shows its last words."""


def free_port() -> int:
    """A free loopback port below the range that the system hands out: a broker that is killed finds it free again."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process so far (utime + stime of /proc/PID/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_all_s(pid: int) -> float:
    """Of a process and its children, and theirs, as far as they live."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(cpu_of_all_s(int(child)) for child in children)


def rss_bytes(pid: int) -> int:
    """Resident memory (VmRSS), which counts mapped file pages too."""
    return _status_kb(pid, "VmRSS:") * 1024


def rss_anonymous_bytes(pid: int) -> int:
    """Resident memory that is not backed by a file: what the process itself asked for."""
    return _status_kb(pid, "RssAnon:") * 1024


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise BenchmarkFailed(f"/proc/{pid}/status has no {field}")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a broker, and what it writes once it accepts connections."""

    command: Sequence[str]
    ready_text: str


class Broker:
    """One broker process. It may be killed and started again on the same data and port."""

    def __init__(self, launch: Launch, log: Path) -> None:
        self._launch = launch
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_after_s = 0.0  # of the latest start

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BenchmarkFailed("the broker is not running")
        return self._process.pid

    def spawn(self) -> float:
        """Start the process without waiting for it; the monotonic time of the start."""
        self._log.write_bytes(b"")
        started = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._launch.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment()
            )
        return started

    def wait_ready(self, started: float) -> None:
        while time.monotonic() - started < READY_S_MAX:
            if self._process is None or self._process.poll() is not None:
                raise BenchmarkFailed(f"{self._launch.command[0]} ended before it was ready: {self._last_words()}")
            if self._launch.ready_text in self._log.read_text(errors="replace"):
                self.ready_after_s = time.monotonic() - started
                return
            time.sleep(POLL_S)
        raise BenchmarkFailed(f"{self._launch.command[0]} was not ready after {READY_S_MAX} s: {self._last_words()}")

    def kill(self) -> None:
        """kill -9."""
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.wait_ready(self.spawn())
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def _last_words(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "it wrote nothing"


class Role:
    """A client process: gets ready, waits for `go`, does its work, reports one JSON object."""

    def __init__(self, role: str, system: str, work: Mapping[str, Any], *, time_s_max: float) -> None:
        self._name = f"{system} {role}"
        self._time_s_max = time_s_max
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.role", role, system, json.dumps(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[work["channel"]] if work.get("channel", -1) >= 0 else [],
            env=child_environment(),
        )

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != "ready":
            raise BenchmarkFailed(f"{self._name}: said {line!r} instead of ready")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        try:
            out, _ = self._process.communicate(timeout=self._time_s_max)
        except subprocess.TimeoutExpired as error:
            raise BenchmarkFailed(f"{self._name}: not done after {self._time_s_max:.0f} s") from error
        if self._process.returncode != 0 or not out.strip():
            raise BenchmarkFailed(f"{self._name}: exit code {self._process.returncode}")
        report: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return report

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
