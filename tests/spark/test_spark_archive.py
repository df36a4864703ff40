"""Goal: an archive has every message once, wherever a run was ended, and people can read it.
Method: runs are ended at each of their steps by a planted exception, and run again."""
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from angarium.cli.commands import app
from angarium.core.errors import ConfigError, Rejected, StorageCorrupt, Unavailable
from angarium.spark.pipelines import compaction, files, manifest
from angarium.spark.pipelines.archive import ArchiveResult, ArchiveSettings, archive, read_archive
from tests.spark.spark_messages import Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)


class Ended(Exception):
    """As if the process had been killed there."""


def run(spark: SparkSession, orders: Orders, *names: str, **settings: Any) -> ArchiveResult:
    wanted = names or (f"{orders.prefix}.*",)
    given = ArchiveSettings(address=(orders.address,), destinations=wanted, to=orders.directory / "archive")
    return archive(spark, replace(given, **settings))


def bodies(spark: SparkSession, orders: Orders) -> list[bytes]:
    return bodies_of(read_archive(spark, orders.directory / "archive"))


def plainly(spark: SparkSession, orders: Orders) -> list[bytes]:
    """As somebody reads it who knows nothing of manifests."""
    return bodies_of(spark.read.parquet(str(orders.directory / "archive")))


def all_sent(orders: Orders) -> list[bytes]:
    return [body for sent in orders.sent.values() for body in sent]


def test_an_archive_goes_on_where_it_was(spark: SparkSession, orders: Orders) -> None:
    orders.create("a")
    orders.create("b", "topic")
    orders.send("a", 3_000)
    orders.send("a", 50, priority=9)
    orders.send("b", 1_000)
    first = run(spark, orders, messages_per_step=1_500, compact=False)
    assert first.archived == {orders.name("a"): 3_050, orders.name("b"): 1_000}
    assert len(first.manifest.files) > 3 and first.manifest.generation == 3
    assert run(spark, orders).archived == {}
    orders.send("a", 500)
    orders.create("c")
    orders.send("c", 10, priority=1)
    again = run(spark, orders)
    assert again.archived == {orders.name("a"): 500, orders.name("c"): 10}
    assert again.manifest.rows == 4_560 and again.gaps == []
    assert digest(bodies(spark, orders)) == digest(plainly(spark, orders)) == digest(all_sent(orders))


def test_rows_say_what_messages_say(spark: SparkSession, orders: Orders) -> None:
    name = orders.create("a")
    orders.send("a", 1, correlation_id="c-1", type="order", priority=7)
    run(spark, orders, name)
    (row,) = read_archive(spark, orders.directory / "archive").collect()
    (source,) = orders.read(spark, subscribe=name).collect()
    for column in source.asDict():
        assert row[column] == source[column], column
    assert row.day == source.timestamp.strftime("%Y-%m-%d") and row.identity > 0


def test_small_files_are_put_together(spark: SparkSession, orders: Orders) -> None:
    orders.create("a")
    for _ in range(4):
        orders.send("a", 100)
        run(spark, orders, compact=False)
    assert len(manifest.load(orders.directory / "archive").files) == 4
    result = run(spark, orders)
    assert result.files_compacted == 4 and len(result.manifest.files) == 1
    (file,) = result.manifest.files
    assert (file.rows, file.position_first, file.position_last) == (400, 0, 399)
    assert digest(plainly(spark, orders)) == digest(all_sent(orders))
    positions = [row.position for row in spark.read.parquet(str(orders.directory / "archive" / file.path)).collect()]
    assert positions == sorted(positions)


STEPS: list[tuple[Any, str, bool]] = [  # where, and whether before it is done
    (files, "staged_files", False), (manifest, "save", True), (manifest, "save", False), (compaction, "_copy", False),
    (Path, "rename", False), (Path, "unlink", False),
]  # fmt: skip


@pytest.mark.parametrize("step", range(len(STEPS)), ids=[f"{name}-{before}" for _, name, before in STEPS])
def test_a_run_that_is_ended_anywhere_duplicates_and_loses_nothing(
    spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    orders.create("a")
    orders.send("a", 200)
    run(spark, orders, compact=False)
    orders.send("a", 200)
    where, name, before = STEPS[step]
    real: Callable[..., Any] = getattr(where, name)
    for calls in (1, 2):  # ended at the first, second time that it comes there
        left = [calls]

        def ending(*arguments: Any, _real: Callable[..., Any] = real, _left: list[int] = left, **named: Any) -> Any:
            _left[0] -= 1
            if before and _left[0] == 0:
                raise Ended
            result = _real(*arguments, **named)
            if not before and _left[0] == 0:
                raise Ended
            return result

        with monkeypatch.context() as patched:
            patched.setattr(where, name, ending)
            try:
                run(spark, orders)
            except Ended:
                seen = Counter(plainly(spark, orders))
                assert max(seen.values(), default=1) == 1, "nobody ever sees a message twice"
        orders.send("a", 20)
    result = run(spark, orders)
    assert result.manifest.rows == len(all_sent(orders))
    assert digest(bodies(spark, orders)) == digest(plainly(spark, orders)) == digest(all_sent(orders))


def test_what_is_gone_is_an_error_or_a_gap(spark: SparkSession, orders: Orders) -> None:
    name = orders.create("a", messages_max=0)  # retains nothing
    orders.send("a", 100)
    run(spark, orders)
    orders.send("a", 50)
    orders.take("a", 120)
    with pytest.raises(Rejected, match="positions 100 to 119 are gone"):
        run(spark, orders)
    result = run(spark, orders, allow_gaps=True)
    assert result.archived == {name: 30} and result.gaps == [f"'{name}': positions 100 to 119 are gone"]
    assert run(spark, orders).gaps == [] and manifest.load(orders.directory / "archive").gaps == result.gaps


def test_a_destination_made_anew_is_another_one(spark: SparkSession, orders: Orders) -> None:
    name = orders.create("a")
    orders.send("a", 10)
    run(spark, orders)
    orders.request("destination.remove", name=name)
    orders.create("a")
    orders.send("a", 5)
    with pytest.raises(Rejected, match="removed and made anew"):
        run(spark, orders)
    run(spark, orders, allow_gaps=True)
    found = read_archive(spark, orders.directory / "archive").groupBy("identity").count().collect()
    assert sorted(row["count"] for row in found) == [5, 10]


def test_mistakes_are_told(spark: SparkSession, orders: Orders) -> None:
    orders.create("a")
    orders.send("a", 10)
    root = orders.directory / "archive"
    with pytest.raises(ConfigError, match="no destinations"):
        archive(spark, ArchiveSettings(address=(orders.address,), destinations=(), to=root))
    with pytest.raises(ConfigError, match="0 messages a step: it takes one at least"):
        run(spark, orders, messages_per_step=0)
    result = run(spark, orders)
    with files.locked(root), pytest.raises(Unavailable, match="another run is busy"):
        run(spark, orders)
    (root / result.manifest.files[0].path).unlink()
    with pytest.raises(StorageCorrupt, match="named in the manifest"):
        run(spark, orders)
    (root / "_manifest/current.json").write_text("{")
    with pytest.raises(ConfigError, match="is no manifest"):
        run(spark, orders)


def test_the_command_reads_its_file_and_says_what_it_did(
    spark: SparkSession, orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.create("a")
    orders.send("a", 25)
    config = orders.directory / "pipelines.toml"
    config.write_text(
        f'address = "{orders.address}"\n[archive]\ndestinations = ["{orders.prefix}.*"]\nto = "{orders.directory}/x"\n'
    )
    app(["pipeline", "archive", "--config", str(config)], standalone_mode=False)
    done = capfd.readouterr()
    assert f"{orders.name('a')}  " in done.out and "25" in done.out
    assert "25 messages archived;" in done.err and "25 messages in 1 file" in done.err
    app(["pipeline", "archive", "-c", str(config), "--json"], standalone_mode=False)
    told = json.loads(capfd.readouterr().out)
    assert told["archived"] == {} and told["rows"] == 25


def test_step_size_bounds_what_is_done_again(spark: SparkSession, orders: Orders) -> None:
    orders.create("a")
    orders.send("a", 100)
    told: list[tuple[int, int]] = []
    settings = ArchiveSettings(
        address=(orders.address,), destinations=(orders.name("a"),), to=orders.directory / "archive",
        messages_per_step=40,
    )  # fmt: skip
    archive(spark, settings, lambda done, total: told.append((done, total)))
    assert told == [(0, 100), (40, 100), (80, 100), (100, 100)]
