"""Goal: a replay brings back what was archived, as it was, once, wherever it was ended."""
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from angarium.cli.commands import app
from angarium.client import blocking
from angarium.core.errors import ConfigError, Rejected
from angarium.spark.pipelines import manifest
from angarium.spark.pipelines import replay as pipeline
from angarium.spark.pipelines.archive import ArchiveSettings, archive
from angarium.spark.pipelines.replay import ReplayResult, ReplaySelection, ReplaySettings, replay
from tests.spark.spark_messages import Orders

pytestmark = pytest.mark.timeout(600)


def archived(spark: SparkSession, orders: Orders, *names: str) -> Path:
    root = orders.directory / "archive"
    archive(spark, ArchiveSettings(address=(orders.address,), destinations=names, to=root))
    return root


def run(spark: SparkSession, orders: Orders, name: str = "r", rate: float = 0.0, **selection: Any) -> ReplayResult:
    root = orders.directory / "archive"
    return replay(spark, ReplaySettings((orders.address,), root, name, ReplaySelection(**selection), rate))


def received(orders: Orders, short: str) -> list[Any]:
    """All that is there, taken; silence alone may be a busy machine."""
    found = []
    with orders.session.consume(orders.name(short)) as consumer:
        while True:
            while (message := consumer.receive(timeout_s=0.1)) is not None:
                found.append(message)
                message.settle()
            orders.session.sync()
            if orders.request("destination.describe", name=orders.name(short))["messages"] == 0:
                return found


class Ended(Exception):
    pass


def test_messages_come_back_as_they_were(spark: SparkSession, orders: Orders) -> None:
    name, copy = orders.create("a"), orders.create("copy")
    fields: dict[str, Any] = {"correlation_id": b"\x01\x02", "type": "t", "group": "g", "group_sequence": 3}
    orders.session.send(name, "text", properties={"n": 7, "x": 1.5, "b": True, "s": "7"}, priority=8, **fields)
    orders.session.send(name, {"k": 1})
    orders.session.send(name, b"\x00\xff", reply_to=copy)
    orders.session.flush(30)
    archived(spark, orders, name)
    assert run(spark, orders, into=copy).sent == {copy: 3}
    before, after = received(orders, "a"), received(orders, "copy")
    for one, other in zip(before, after, strict=True):
        for what in ("body", "properties", "priority", "correlation_id", "type", "group", "reply_to"):
            assert getattr(one, what) == getattr(other, what), what


def ending(real: Callable[..., None], times: int, *, is_done: bool) -> Callable[..., None]:
    """The run ends there when it is called for that time, before or after it is done."""
    calls = count(1)

    def mutant(*arguments: Any) -> None:
        is_last = next(calls) == times
        if is_last and not is_done:
            raise Ended
        real(*arguments)
        if is_last:
            raise Ended

    return mutant


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("where", "is_done"), [("note", False), ("note", True), ("commit", True)],
    ids=["staged", "noted", "committed"],
)  # fmt: skip
def test_a_replay_that_is_ended_sends_nothing_twice(
    spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch, where: str, is_done: bool, times: int
) -> None:
    """Also if it goes on in chunks of another size, with more in the archive."""
    name, copy = orders.create("a"), orders.create("copy")
    sent = orders.send("a", 1_500)
    archived(spark, orders, name)
    monkeypatch.setattr(pipeline, "CHUNK", 400)
    with monkeypatch.context() as patched:
        if where == "note":
            patched.setattr(pipeline, "write_whole", ending(manifest.write_whole, times, is_done=is_done))
        else:
            commit = ending(blocking.Connection.commit_stage, times, is_done=is_done)
            patched.setattr(blocking.Connection, "commit_stage", commit)
        with pytest.raises(Ended):
            run(spark, orders, into=copy)
    committed = 400 * (times - (where == "note"))
    assert orders.request("destination.describe", name=copy)["messages"] == committed
    sent += orders.send("a", 100)
    archived(spark, orders, name)
    monkeypatch.setattr(pipeline, "CHUNK", 300)
    run(spark, orders, into=copy)
    assert run(spark, orders, into=copy).sent == {}
    found = [bytes(message.body) for message in received(orders, "copy")]
    assert found == sent, f"{len(found)} messages, {max(Counter(found).values())} of one"


def test_replays_of_one_name_from_two_archives_are_not_taken_for_one(spark: SparkSession, orders: Orders) -> None:
    name, copy = orders.create("a"), orders.create("copy")
    orders.send("a", 10)
    root = archived(spark, orders, name)
    run(spark, orders, into=copy)
    root.rename(root.with_name("other"))
    archived(spark, orders, name)
    assert run(spark, orders, into=copy).sent == {copy: 10}
    assert orders.request("destination.describe", name=copy)["messages"] == 20


def test_it_goes_on_with_what_was_archived_since(spark: SparkSession, orders: Orders) -> None:
    name, copy = orders.create("a"), orders.create("copy")
    orders.send("a", 10)
    archived(spark, orders, name)
    run(spark, orders, into=copy)
    orders.send("a", 5)
    orders.send("a", 2, priority=9)
    archived(spark, orders, name)
    assert run(spark, orders, into=copy).sent == {copy: 7}


def test_by_time_position_and_selector(spark: SparkSession, orders: Orders) -> None:
    name, copy = orders.create("a"), orders.create("copy")
    orders.send("a", 30)
    time.sleep(0.02)
    middle_ms = int(time.time() * 1_000)
    time.sleep(0.02)
    orders.send("a", 20, type="late")
    archived(spark, orders, name)
    assert run(spark, orders, "1", into=copy, from_ms=middle_ms).sent == {copy: 20}
    assert run(spark, orders, "2", into=copy, to_ms=middle_ms).sent == {copy: 30}
    assert run(spark, orders, "3", into=copy, position_from=10, position_to=15).sent == {copy: 5}
    assert run(spark, orders, "4", into=copy, selector="n >= 45 AND JMSType = 'late'").sent == {copy: 5}
    with pytest.raises(ConfigError, match="has nothing of what is asked for"):
        run(spark, orders, "5", destinations=("other.*",))
    with pytest.raises(ConfigError, match="begun with another selection"):
        run(spark, orders, "4", into=copy)
    with pytest.raises(Rejected, match="there is no destination 'nowhere': angarium create nowhere"):
        run(spark, orders, "6", into="nowhere")
    with pytest.raises(ConfigError, match="--name"):
        run(spark, orders, "a/b")


def test_a_rate_is_kept(
    spark: SparkSession, orders: Orders, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy = orders.create("a"), orders.create("copy")
    orders.send("a", 50)
    root = archived(spark, orders, name)
    slept: list[float] = []
    monkeypatch.setattr(pipeline, "time", SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=slept.append))
    app(
        ["pipeline", "replay", name, "-a", orders.address, "--archive", str(root), "--name", "slow", "--into", copy,
         "--rate", "50"],
        standalone_mode=False,
    )  # fmt: skip
    assert 0.9 <= sum(slept) <= 1.0, "from the first message on, however long Spark has taken before"
    assert "50 messages replayed" in capfd.readouterr().err
