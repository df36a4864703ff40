"""Goal: what a disk has damaged is never taken for what was not there: whoever reads is told, and may go on without.
Method: a bit is flipped in the store of a broker that is down."""
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from angarium.cli.commands import app
from angarium.cli.failure import Failure
from angarium.spark.pipelines import manifest
from angarium.spark.pipelines.archive import ArchiveSettings, archive
from tests.process.process_broker import running
from tests.process.process_damage import flip_in_journal
from tests.spark.spark_messages import Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)
BATCH = 100  # messages that are confirmed before the next are sent
DAMAGED = 250  # the number of a message of the third batch


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Orders]:
    with running(tmp_path) as broker, Orders(broker.address, "damaged", tmp_path) as orders:
        orders.create("a")
        for _ in range(5):
            orders.send("a", BATCH)
        assert broker.stop() == 0
        assert flip_in_journal(broker.data, orders.sent[orders.name("a")][DAMAGED]) == 1
        broker.start()
        yield orders


def test_a_damaged_batch_is_loss(spark: SparkSession, damaged: Orders) -> None:
    orders, name = damaged, damaged.name("a")
    told = r"positions 2\d\d to 2\d\d are damaged.*failOnDataLoss"
    with pytest.raises(Exception, match=told):
        orders.read(spark, subscribe=name).count()
    with pytest.raises(Exception, match=told):
        orders.drain(orders.stream(spark, subscribe=name))
    found = bodies_of(orders.read(spark, subscribe=name, failOnDataLoss=False))
    sent = orders.sent[name]
    assert sent[DAMAGED] not in found and set(found) >= {*sent[:200], *sent[300:]} and len(found) == len(set(found))
    orders.drain(orders.stream(spark, subscribe=name, failOnDataLoss=False))
    assert digest(bodies_of(orders.drained(spark))) == digest(found)


def test_an_archive_says_what_it_has_not(spark: SparkSession, damaged: Orders, tmp_path: Path) -> None:
    name, root = damaged.name("a"), tmp_path / "archive"
    settings = ArchiveSettings(address=(damaged.address,), destinations=(name,), to=root)
    with pytest.raises(Exception, match="are damaged"):
        archive(spark, settings)
    with pytest.raises(Failure, match=rf"^'{name}': positions 2\d\d to 2\d\d are damaged") as failed:
        app(["pipeline", "archive", name, "--to", str(root), "-a", damaged.address], standalone_mode=False)
    assert len(str(failed.value).splitlines()) == 1, "for people"
    assert not manifest.load(root).files, "nothing is done of a step that failed"
    result = archive(spark, ArchiveSettings(settings.address, settings.destinations, root, allow_gaps=True))
    missing = 5 * BATCH - result.archived[name]
    assert 0 < missing <= BATCH
    assert result.gaps == [f"{name!r}: {missing} of positions 0 to {5 * BATCH - 1} are gone or damaged"]
    assert manifest.load(root).gaps == result.gaps
