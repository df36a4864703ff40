"""Goal: source and sink work in Spark Connect and in Declarative Pipelines, as docs/guide/spark.md has it.

Each is a process of its own with a JVM of its own, as a user would start it.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.spark_messages import Orders

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("spark_master")]
GUIDE = (Path(__file__).parents[2] / "docs/guide/spark.md").read_text(encoding="utf-8")
COUNT = 500


def example(heading: str, language: str) -> str:
    return GUIDE[GUIDE.index(heading) :].split(f"```{language}\n")[1].split("```\n")[0]


def adapted(program: str, address: str, names: dict[str, str]) -> str:
    program = program.replace("angarium://localhost", address)
    for ours, theirs in names.items():
        for key in ('"subscribe", ', '"destination", ', '"destination": '):
            program = program.replace(f'{key}"{ours}"', f'{key}"{theirs}"')
    return program


def run(directory: Path, *command: str) -> str:
    # What PySpark has set for the session of the tests is not for another.
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    env = known | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout + done.stderr


def bodies(orders: Orders, name: str) -> list[bytes]:
    log = orders.connection.log(name)
    return sorted(bytes(body) for lane in log.describe().lanes for piece in log.read(lane.first, lane.end)
                  for body in piece.batch.bodies())  # fmt: skip


def test_spark_connect(orders: Orders, tmp_path: Path) -> None:
    incoming, outgoing = orders.create("orders"), orders.create("copy")
    sent = orders.send("orders", COUNT)
    program = example("### Spark Connect", "python")
    program = adapted(program, orders.address, {"orders": incoming, "orders-copy": outgoing})
    (tmp_path / "program.py").write_text(program)
    told = run(tmp_path, sys.executable, "program.py")
    assert f"{COUNT} orders" in told
    assert bodies(orders, outgoing) == sorted(sent)


def test_declarative_pipelines(orders: Orders, tmp_path: Path) -> None:
    incoming, outgoing = orders.create("orders"), orders.create("results")
    sent = orders.send("orders", COUNT)
    specification = example("### Declarative Pipelines", "yaml").replace("/srv/pipeline", str(tmp_path / "storage"))
    (tmp_path / "spark-pipeline.yml").write_text(specification)
    (tmp_path / "definitions").mkdir()
    program = example("### Declarative Pipelines", "python")
    program = adapted(program, orders.address, {"orders": incoming, "results": outgoing})
    (tmp_path / "definitions" / "orders.py").write_text(program)
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run"]
    run(tmp_path, *command)
    assert bodies(orders, outgoing) == sorted(sent)
    sent += orders.send("orders", COUNT)
    run(tmp_path, *command)
    assert bodies(orders, outgoing) == sorted(sent), "only what is new"
