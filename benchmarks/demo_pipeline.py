"""The last act of the demonstration: Spark archives what went through the kills, and audits it by the cluster's traces.

The commands are those that anybody would type. Nothing of the books that producers and consumers have kept is used.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND_S_MAX = 180.0
_COMMAND = [sys.executable, "-m", "angarium.cli.main", "pipeline"]


def hindrance() -> str:
    """Why it cannot be shown here; empty if it can."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        return "Spark is not installed: pip install '.[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless"
    return ""


def run(addresses: list[str], directory: Path, say: Callable[[str], None]) -> list[str]:
    """What is wrong, if anything."""
    to = ["--address", ",".join(addresses), "--json"]
    say("angarium pipeline archive orders prices --to archive")
    archived = _run(["archive", "orders", "prices", "--to", str(directory / "archive"), *to])
    told = ", ".join(f"{count:,} of {name}" for name, count in sorted(archived["archived"].items()))
    say(f"archived {told}, in {archived['files']} files")
    say("angarium pipeline audit")
    audited = _run(["audit", *to])
    for row in audited["destinations"]:
        where = f"{row['destination']}, {row['subscription']}" if row["subscription"] else row["destination"]
        say(
            f"{where}: {row['confirmed']:,} confirmed, {row['settled']:,} settled; {row['lost']:,} lost, "
            f"{row['duplicated']:,} duplicated, {row['reordered']:,} reordered; delivered after "
            f"{row['latency_ms'][0]:,.0f} ms (half), {row['latency_ms'][1]:,.0f} ms (99 %)"
        )
    wrong = [f"the audit says: {what}" for what in audited["broken"]]
    lost, twice = (sum(row[what] for row in audited["destinations"]) for what in ("lost", "duplicated"))
    lost += audited["replaced_messages"]
    say(f"{lost:,} lost, {twice + audited['copies_too_many']:,} duplicated: computed by Spark from the traces")
    settled = {row["destination"]: row["settled"] for row in audited["destinations"]}
    return wrong + [
        f"{name}: {archived['archived'].get(name, 0):,} are archived, and {count:,} settled"
        for name, count in settled.items()
        if archived["archived"].get(name) != count
    ]


def _run(arguments: list[str]) -> Any:
    done = subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, timeout=COMMAND_S_MAX)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RuntimeError(done.stderr.strip()[-1_000:] or f"exit code {done.returncode}") from None
