"""Commands of `angarium` in processes of their own, without the half second of a core that each would take to import
what all of them need: one process has imported it, and forks for each command, which gets its own standard streams.

Run as a program this is that process: it is sent arguments, environment and three descriptors, and answers with the
exit code. It ends with whoever has started it.
"""
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_REQUEST_BYTES_MAX = 1 << 20
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


def _send(arguments: tuple[str, ...], environment: dict[str, str], descriptors: list[int]) -> None:
    global _forking
    if _forking is None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            command = [sys.executable, "-m", "tests.process.cli_forks", str(far.fileno())]
            process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[far.fileno()], env=environment)
        _forking = near
        atexit.register(process.wait)
        atexit.register(near.close)  # the last first: then it ends
    request = json.dumps({"arguments": arguments, "environment": environment, "directory": str(Path.cwd())}).encode()
    socket.send_fds(_forking, [request], descriptors)


# -- the process that forks ------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    from angarium.cli import commands, failure, main  # noqa: F401 (what every command needs)

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
    """A process between, so that several commands may run at the same time."""
    *streams, answer = descriptors
    child = os.fork()
    if child == 0:
        os.close(answer)
        _become(json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    os.write(answer, str(child).encode())
    _, status = os.waitpid(child, 0)
    os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, object], streams: list[int]) -> None:
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list) and isinstance(environment, dict)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
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
