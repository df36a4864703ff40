"""`angarium` as a subprocess, and a real `angarium up` on a free loopback port: for the tests of the command line."""
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.process.cli_forks import run_forked

COMMAND = [sys.executable, "-m", "angarium.cli.main"]
WAIT_S = 60.0


def environment(**extra: str) -> dict[str, str]:
    """Ours, without what would change the command's behaviour, make each start compile everything again, or have
    a make that is started by another make speak of directories first."""
    unwanted = ("ANGARIUM_", "PYTHONDONTWRITEBYTECODE", "MAKE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    return kept | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"} | extra


class Node:
    """An `angarium up` that was ready when this was made."""

    def __init__(self, data: Path, port: int) -> None:
        self.address = f"angarium://127.0.0.1:{port}"
        self.data = data
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--data", str(data), "--listen", f"127.0.0.1:{port}", "--name", "test"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()

    def run(self, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return run(*arguments, stdin=stdin, ANGARIUM_ADDRESS=self.address)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(ANGARIUM_ADDRESS=self.address),
        )  # fmt: skip

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


def run(*arguments: str, stdin: bytes | None = None, **extra: str) -> subprocess.CompletedProcess[bytes]:
    return run_forked(arguments, stdin or b"", environment(**extra), WAIT_S)


def assert_one_sentence(done: subprocess.CompletedProcess[bytes], *, code: int = 1) -> str:
    """The command failed as promised: exit code, one line on standard error, nothing on standard output."""
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert text.startswith("angarium: ")
    assert text.count("\n") == 1, text
    assert done.stdout == b""
    return text
