"""One very large message from disk to disk, and what it costs everybody else: `python -m benchmarks.streams --mb 4000`.

    sender process                 broker                  receiver process
    file --stream--+                                       +--stream--> file
                   one connection ========== one connection
    request -------+                                       +-------- reply

A small durable request goes out on the sender's connection and is answered on the receiver's, one after the other, all
the time: while nothing else happens (idle), while the stream is sent, and while it is received. The bars: no process
ever above 150 MB resident (VmHWM, the highest that the kernel has seen), and a p99 within 5 times of idle. The file
that arrives is compared with the one that was sent, byte by byte.
"""
import argparse
import asyncio
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

import angarium
from benchmarks.processes import Broker, Launch, child_environment, free_port

RSS_MB_MAX = 150.0
P99_RATIO_MAX = 5.0
IDLE_S = 15.0
PAUSE_S = 0.005  # between a reply and the next request
REQUEST = b"x" * 100
STREAMS, REQUESTS, REPLIES = "bench.streams", "bench.requests", "bench.replies"
WRITE_BYTES = 1 << 20


# -- roles -------------------------------------------------------------------------------------------------


async def _commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Requester:
    def __init__(self, session: angarium.Session) -> None:
        self._session = session
        self.times_s: list[float] = []

    async def run(self) -> None:
        async with self._session.consume(REPLIES, prefetch=1) as replies:
            await replies.opened()
            while True:
                began = time.monotonic()
                self._session.send(REQUESTS, REQUEST)
                reply = await replies.receive()
                assert reply is not None
                self.times_s.append(time.monotonic() - began)
                reply.settle()
                await asyncio.sleep(PAUSE_S)

    def take(self) -> list[float]:
        taken, self.times_s = self.times_s, []
        return taken


async def _sender(address: str, path: Path) -> None:
    commands = await _commands()
    async with angarium.connect(address) as connection, connection.session() as session, connection.session() as small:
        requester = Requester(small)
        task = asyncio.create_task(requester.run())
        _say(ready=True)
        while line := (await commands.readline()).strip():
            began = time.monotonic()
            if line == b"begin":
                requester.take()
            elif line == b"send":
                with path.open("rb") as file:
                    sending = await session.send_stream(STREAMS, file)
                await sending
            _say(seconds=time.monotonic() - began, times_s=requester.take())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _receiver(address: str, path: Path) -> None:
    commands = await _commands()
    async with angarium.connect(address) as connection, connection.session() as session, connection.session() as small:
        task = asyncio.create_task(_reply(small))
        _say(ready=True)
        while (await commands.readline()).strip():
            began = time.monotonic()
            message = await session.receive(STREAMS, 60.0)
            assert message is not None
            await _save(message, path)
            message.settle()
            await session.sync()
            _say(seconds=time.monotonic() - began)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _reply(session: angarium.Session) -> None:
    async with session.consume(REQUESTS, prefetch=1) as requests:
        async for request in requests:
            session.send(REPLIES, request.body)
            request.settle()


async def _save(message: angarium.Message, path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        parts: list[bytes] = []
        async with message.open() as stream:
            async for part in stream:
                parts.append(part)
                if len(parts) * len(part) >= WRITE_BYTES:
                    await asyncio.to_thread(_write, file.fileno(), parts)
                    parts = []
        await asyncio.to_thread(_write, file.fileno(), parts)


def _write(descriptor: int, parts: list[bytes]) -> None:
    if parts:
        os.writev(descriptor, parts)
        os.fdatasync(descriptor)


# -- the measurement ---------------------------------------------------------------------------------------


class Role:
    def __init__(self, name: str, address: str, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.streams", "--role", name, address, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment(),
        )  # fmt: skip
        self.answer()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            self.process.kill()


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def percentile(times_s: list[float], part: float) -> float:
    return sorted(times_s)[min(len(times_s) - 1, int(part * len(times_s)))] * 1000


def make_file(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
        file.flush()
        os.fsync(file.fileno())


def measure(megabytes: int, directory: Path) -> dict[str, Any]:
    source, target = directory / "source", directory / "target"
    make_file(source, megabytes)
    port = free_port()
    address = f"angarium://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "angarium.cli.main", "up", "--data", str(directory / "data"), "--listen",
        f"127.0.0.1:{port}",
    ]  # fmt: skip
    with Broker(Launch(command, "ready"), directory / "broker.log") as broker:
        receiver = Role("receiver", address, target)
        sender = Role("sender", address, source)
        try:
            time.sleep(2.0)
            sender.tell("begin")
            sender.answer()
            time.sleep(IDLE_S)
            sender.tell("idle")
            idle = sender.answer()["times_s"]
            sender.tell("send")
            sent = sender.answer()
            sender.tell("begin")
            sender.answer()
            receiver.tell("receive")
            received = receiver.answer()
            sender.tell("received")
            while_receiving = sender.answer()["times_s"]
            peaks = {"sender": sender.process.pid, "broker": broker.pid, "receiver": receiver.process.pid}
            rss_mb = {name: round(peak_mb(pid), 1) for name, pid in peaks.items()}
        finally:
            sender.end()
            receiver.end()
    assert filecmp.cmp(source, target, shallow=False), "what arrived is not what was sent"
    phases = {"idle": idle, "sending": sent["times_s"], "receiving": while_receiving}
    p99_ms = {name: percentile(times, 0.99) for name, times in phases.items()}
    return {
        "mb": megabytes,
        "send_mb_s": round(megabytes / sent["seconds"], 1),
        "receive_mb_s": round(megabytes / received["seconds"], 1),
        "rss_mb_max": rss_mb,
        "requests": {name: len(times) for name, times in phases.items()},
        "p50_ms": {name: round(percentile(times, 0.5), 2) for name, times in phases.items()},
        "p99_ms": {name: round(value, 2) for name, value in p99_ms.items()},
        "p99_ratio": {name: round(p99_ms[name] / p99_ms["idle"], 2) for name in ("sending", "receiving")},
        "load": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mb", type=int, default=400, help="megabytes of the message")
    parser.add_argument("--dir", type=Path, default=None, help="where files and the broker's data go: a real disk")
    parser.add_argument("--role", nargs=3, metavar=("NAME", "ADDRESS", "PATH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        name, address, path = given.role
        uvloop.run((_sender if name == "sender" else _receiver)(address, Path(path)))
        return
    with tempfile.TemporaryDirectory(dir=given.dir) as directory:
        result = measure(given.mb, Path(directory))
    print(json.dumps(result, indent=1))
    too_large = [name for name, mb in result["rss_mb_max"].items() if mb > RSS_MB_MAX]
    too_slow = [name for name, ratio in result["p99_ratio"].items() if ratio > P99_RATIO_MAX]
    if too_large or too_slow:
        raise SystemExit(f"above the bars: memory of {too_large}, p99 while {too_slow}")


if __name__ == "__main__":
    main()
