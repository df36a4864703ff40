"""Several processes as one: `python -m benchmarks.gang DIRECTORY`, where DIRECTORY/gang.json lists them.

They are started together and ended together when we are told to; if one ends by itself, so do the others. What they
write goes to our output, and once all have said that they are ready, so do we.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.processes import Launch

READY_TEXT = "all of the gang are ready"
STOP_S_MAX = 8.0  # less than a benchmark waits for us
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Member:
    command: Sequence[str]
    ready_text: str = ""  # empty: it says nothing
    environment: Mapping[str, str] = field(default_factory=dict)


def gang_of(members: Sequence[Member], directory: Path) -> Launch:
    (directory / "gang.json").write_text(json.dumps([asdict(member) for member in members]))
    return Launch([sys.executable, "-m", "benchmarks.gang", str(directory)], READY_TEXT)


class _Running:
    def __init__(self, member: Member) -> None:
        self.process = subprocess.Popen(
            member.command, env=os.environ | member.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.is_ready = not member.ready_text
        self._ready_text = member.ready_text
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.is_ready = self.is_ready or self._ready_text in line
            print(line, end="", flush=True)


def main() -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    members = [Member(**each) for each in json.loads((Path(sys.argv[1]) / "gang.json").read_text())]
    running = [_Running(member) for member in members]
    is_told = False
    while not stopping.wait(POLL_S) and all(each.process.poll() is None for each in running):
        if not is_told and all(each.is_ready for each in running):
            is_told = True
            print(READY_TEXT, flush=True)
    _stop([each.process for each in running])


def _stop(processes: "Sequence[subprocess.Popen[str]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + STOP_S_MAX
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
