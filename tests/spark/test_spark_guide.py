"""Goal: the commands of docs/guide/pipelines.md run as they are written there, but for address and directories."""
import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from angarium import blocking
from angarium.cli.commands import app
from tests.process.process_broker import Broker

pytestmark = pytest.mark.timeout(600)
GUIDE = (Path(__file__).parents[2] / "docs/guide/pipelines.md").read_text(encoding="utf-8")
COMMANDS = [line for line in re.findall(r"^angarium .*$", GUIDE, re.MULTILINE) if "--help" not in line]


def test_the_commands_of_the_guide_run(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANGARIUM_ADDRESS", broker.address)
    monkeypatch.chdir(tmp_path)
    (settings,) = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    Path("pipelines.toml").write_text(
        settings.replace("/srv", str(tmp_path)).replace("angarium://broker1,angarium://broker2", broker.address)
    )
    with blocking.connect(broker.address) as connection:
        for name, kind in (("orders", "queue"), ("prices.eu", "topic"), ("orders-copy", "queue")):
            connection.request("destination.create", {"name": name, "kind": kind, "retain_s": 3_600})
        with connection.session() as session:
            session.send_many("orders", [b"one", b"two"])
            assert len(COMMANDS) >= 7
            for command in COMMANDS:
                app(shlex.split(command.replace("/srv", str(tmp_path)))[1:], standalone_mode=False)
                session.send_many("orders", [b"more"])
    assert Path("audit.html").exists() and Path("traffic.html").exists()
    assert list((tmp_path / "archive").glob("destination=orders/day=*/*.parquet"))
