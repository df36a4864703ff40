"""Commands of `angarium`, brokers and nodes in processes of their own, without the half second of a core that each
would take to import what all of them need: one process has imported it, and forks for each, which gets its own standard
streams. That they start from nothing too is shown by the tests of the command line.

Run as a program this is that process: it is sent arguments, environment and three descriptors, and answers with the
exit code. It ends with whoever has started it.
"""
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).parents[2]
_REQUEST_BYTES_MAX = 1 << 20
_START_S_MAX = 60.0
_forking: socket.socket | None = None  # to the process that forks for us


def run_forked(
    arguments: tuple[str, ...], stdin: bytes, environment: dict[str, str], timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    given, out, errors = os.pipe(), os.pipe(), os.pipe()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    giving = FileIO(given[1], "w")
    with near, giving, FileIO(out[0]) as output, FileIO(errors[0]) as complaints:
        try:
            _send(arguments, environment, [given[0], out[1], errors[1], far.fileno()])
        finally:
            far.close()
            for descriptor in (given[0], out[1], errors[1]):
                os.close(descriptor)
        with ThreadPoolExecutor(3) as pool:
            reading = [pool.submit(file.readall) for file in (output, complaints)]
            pool.submit(_give, giving, stdin)
            code = _exit_code(near, arguments, timeout_s)
            said, complained = (each.result() for each in reading)
    return subprocess.CompletedProcess(["angarium", *arguments], code, said, complained)


class Forked(subprocess.Popen[str]):
    """A broker or a node that goes on, as long as somebody holds this. It is the child of a process that tells how it
    has ended."""

    def __init__(
        self, arguments: tuple[str, ...], environment: dict[str, str], *, output: IO[bytes] | None, errors: IO[bytes],
        is_leader: bool = False,
    ) -> None:  # fmt: skip
        """`output`: where it writes; None: `stdout` reads it. `is_leader`: of a session of its own."""
        self.args = ["angarium", *arguments]
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._answers, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        nothing = os.open(os.devnull, os.O_RDONLY)
        written = nothing
        try:
            if output is None:
                reading, written = os.pipe()
                self.stdout = os.fdopen(reading, encoding="utf-8")
            streams = [nothing, written if output is None else output.fileno(), errors.fileno()]
            _send(arguments, environment, [*streams, far.fileno()], is_leader=is_leader)
        finally:
            far.close()
            for descriptor in {nothing, written}:
                os.close(descriptor)
        self._answers.settimeout(_START_S_MAX)
        self.pid = int(self._answers.recv(16))

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        if not self._asking.acquire(blocking=timeout_s != 0.0):
            return self.returncode  # another thread waits for it
        try:
            if self.returncode is None:
                self._answers.settimeout(timeout_s)
                with suppress(TimeoutError, BlockingIOError):
                    self.returncode = int(self._answers.recv(16))
                    self._answers.close()
            return self.returncode
        finally:
            self._asking.release()

    def __del__(self) -> None:
        """Nothing is left that a parent would have to do."""


def _exit_code(answers: socket.socket, arguments: tuple[str, ...], timeout_s: float) -> int:
    """Its process id comes first, so that one that does not end can be ended."""
    told = {}
    for what in ("process id", "exit code"):
        answers.settimeout(timeout_s)
        try:
            told[what] = answers.recv(16)
        except TimeoutError:
            if "process id" in told:
                os.kill(int(told["process id"]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(["angarium", *arguments], timeout_s) from None
        assert told[what], f"{arguments}: the process that forks has ended"
    return int(told["exit code"])


def _give(file: FileIO, data: bytes) -> None:
    with file, suppress(BrokenPipeError):
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _send(
    arguments: tuple[str, ...], environment: dict[str, str], descriptors: list[int], *, is_leader: bool = False
) -> None:
    global _forking
    if _forking is None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            command = [sys.executable, "-m", "tests.process.cli_forks", str(far.fileno())]
            process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[far.fileno()], env=environment)
        _forking = near
        atexit.register(process.wait)
        atexit.register(near.close)  # the last first: then it ends
    request = {"arguments": arguments, "environment": environment, "directory": str(Path.cwd()), "leads": is_leader}
    socket.send_fds(_forking, [json.dumps(request).encode()], descriptors)


# -- the process that forks ------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    from angarium.cli import commands, failure, main  # noqa: F401 (what every command needs)
    from angarium.node import main as broker  # noqa: F401 (what a broker needs)
    from angarium.node.cluster import main as node  # noqa: F401 (what a node needs)

    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _wait_for(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _wait_for(request: bytes, descriptors: list[int]) -> None:
    """A process between, so that several commands may run at the same time, and none runs on for nobody."""
    *streams, answer = descriptors
    child = os.fork()
    if child == 0:
        os.close(answer)
        _become(json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    with suppress(OSError):
        os.write(answer, str(child).encode())
        ended, _, _ = select.select([os.pidfd_open(child), answer], [], [])
        if answer in ended:  # nobody waits for it any more: the tests were killed
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, object], streams: list[int]) -> None:
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list) and isinstance(environment, dict)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["leads"]:
        os.setsid()
    os.chdir(str(request["directory"]))
    os.environ.clear()
    os.environ.update(environment)
    from angarium.cli import main

    sys.argv = [str(main.__file__), *arguments]
    code = 1
    try:
        main.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for written in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                written.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
