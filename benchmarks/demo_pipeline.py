"""The last act of the demonstration: Spark archives what went through the kills, and audits it by the cluster's traces.

Both do what `angarium pipeline archive` and `angarium pipeline audit` do, at the same time and in one Spark session: to
start one takes some seconds, most of it for Java. So a process of its own starts it while messages still flow, and
begins when all have arrived. Nothing of the books that producers and consumers have kept is used.

    Pipelines.start() --> the process: session ... "ready" --"go"--> archive and audit --> a line of JSON for each
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

_NICE = 5  # while the cluster works
_DESTINATIONS = ("orders", "prices")
_SETTINGS = {  # for little to do: what is compiled best, and in many parts, comes too late
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def hindrance() -> str:
    """Why it cannot be shown here; empty if it can."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        return "Spark is not installed: pip install '.[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless"
    return ""


class Pipelines:
    """The process, as the demonstration sees it."""

    def __init__(self, addresses: list[str], directory: Path) -> None:
        self._arguments = [",".join(addresses), str(directory / "archive")]
        self._errors = directory / "spark.log"
        self._process: subprocess.Popen[str] | None = None
        self._is_late = False

    def start(self) -> None:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.demo_pipeline", *self._arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def run(self, say: Callable[[str], None], *, within_s: float) -> list[str]:
        """What is wrong, if anything. If Spark takes longer that is said, and is not wrong."""
        say("angarium pipeline archive orders prices --to archive; angarium pipeline audit")
        guard = threading.Timer(max(within_s, 0.0), self._give_up)
        guard.start()
        try:
            return self._told(say)
        finally:
            guard.cancel()

    def _told(self, say: Callable[[str], None]) -> list[str]:
        archived = audited = None
        for _ in range(2):
            answer = self._answer()
            if answer is None:
                say("it ends without all of that: Spark takes too long here; --within SECONDS waits longer for it")
                return []
            name, told = answer
            if name == "archive":
                archived = told
                counts = ", ".join(f"{count:,} of {name}" for name, count in sorted(told["archived"].items()))
                say(f"archived {counts}, in {told['files']} files")
            else:
                audited = told
                _tell(told, say)
        assert archived is not None
        assert audited is not None
        wrong = [f"the audit says: {what}" for what in audited["broken"]]
        settled = {row["destination"]: row["settled"] for row in audited["destinations"]}
        return wrong + [
            f"{name}: {archived['archived'].get(name, 0):,} are archived, and {count:,} settled"
            for name, count in settled.items()
            if archived["archived"].get(name) != count
        ]

    def _give_up(self) -> None:
        assert self._process is not None
        self._is_late = True
        self._process.kill()

    def _answer(self) -> tuple[str, Any] | None:
        """None: it was given up."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if not process.stdin.closed:
            process.stdin.close()  # go
        line = process.stdout.readline()
        if not line and self._is_late:
            return None
        if not line:
            said = self._errors.read_text(errors="replace").strip()[-1_000:]
            raise RuntimeError(f"Spark: {said or f'it ended with exit code {process.wait()}'}")
        name, told = json.loads(line)
        return str(name), told

    def stop(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()  # Java ends with it


def _tell(audited: Any, say: Callable[[str], None]) -> None:
    for row in audited["destinations"]:
        where = f"{row['destination']}, {row['subscription']}" if row["subscription"] else row["destination"]
        say(
            f"{where}: {row['confirmed']:,} confirmed, {row['settled']:,} settled; {row['lost']:,} lost, "
            f"{row['duplicated']:,} duplicated, {row['reordered']:,} reordered; delivered after "
            f"{row['latency_ms'][0]:,.0f} ms (half), {row['latency_ms'][1]:,.0f} ms (99 %)"
        )
    lost, twice = (sum(row[what] for row in audited["destinations"]) for what in ("lost", "duplicated"))
    lost += audited["replaced_messages"]
    say(f"{lost:,} lost, {twice + audited['copies_too_many']:,} duplicated: computed by Spark from the traces")


def main(addresses: tuple[str, ...], archived_to: Path) -> None:
    from angarium.spark.pipelines import archive, audit
    from angarium.spark.pipelines.session import spark_session

    os.nice(_NICE)
    with spark_session("demo", settings=_SETTINGS) as spark, ThreadPoolExecutor() as both:
        sys.stdin.read()
        wanted, asked = archive.ArchiveSettings(addresses, _DESTINATIONS, archived_to), audit.AuditSettings(addresses)
        other = spark.newSession()  # each sets what it needs
        work = {
            both.submit(lambda: archive.summary(archive.archive(spark, wanted))): "archive",
            both.submit(lambda: audit.summary(audit.audit(other, asked))): "audit",
        }
        for done in as_completed(work):
            print(json.dumps([work[done], done.result()], default=str), flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1].split(",")), Path(sys.argv[2]))
