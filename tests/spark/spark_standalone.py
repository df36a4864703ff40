"""A standalone cluster of Spark on this machine: a master and two workers, each a process of its own.

Executors are processes of the workers: nothing that a task needs can be left lying in the driver.
"""
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from benchmarks.processes import free_port

WORKERS = 2
START_S_MAX = 120.0
STOP_S_MAX = 30.0
_CLASSES = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """The master's address, once all workers have registered."""
    master = f"spark://127.0.0.1:{free_port()}"
    host, port = master.removeprefix("spark://").split(":")
    with contextlib.ExitStack() as started:
        log = directory / "master.log"
        where = ["--host", host, "--port", port, "--webui-port", "0"]
        process = started.enter_context(_running(log, f"{_CLASSES}.master.Master", *where))
        _wait_for(process, log, "I have been elected leader", 1)
        for number in range(WORKERS):
            # Each has an address of its own: of a host that runs a task, Spark asks no second attempt of it.
            work = ["--host", f"127.0.0.{number + 1}", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            place = ["--work-dir", str(directory / f"work{number}"), master]
            worker_log = directory / f"worker{number}.log"
            started.enter_context(_running(worker_log, f"{_CLASSES}.worker.Worker", *work, *place))
        _wait_for(process, log, "Registering worker", WORKERS)
        yield master


@contextlib.contextmanager
def _running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path, words: str, times: int) -> None:
    until = time.monotonic() + START_S_MAX
    while log.read_text().count(words) < times:
        assert process.poll() is None, log.read_text()[-2_000:]
        assert time.monotonic() < until, f"{words!r} not told {times} times: {log.read_text()[-2_000:]}"
        time.sleep(0.1)
