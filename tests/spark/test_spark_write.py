"""Goal: what Spark writes is in the broker once: batches, streams, repeated ones, with tasks that fail."""
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from angarium.core.client.gathered import Gathered
from angarium.spark.pipelines.session import setting
from tests.spark.spark_messages import STARTS_MAX, TOO_SLOW, Orders

pytestmark = pytest.mark.timeout(600)  # on a machine that does other things, too


def rows(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """Bodies `0`, `1`, ..."""
    return spark.range(0, count, 1, partitions).select(f.col("id").cast("string").cast("binary").alias("body"))


def write(frame: DataFrame, orders: Orders, **options: Any) -> None:
    writer = frame.write.format("angarium").mode("append").option("address", orders.address)
    writer.options(**options).save()


def written(orders: Orders, name: str) -> Counter[bytes]:
    """Bodies that its log holds, of all priorities."""
    log, found = orders.connection.log(name), Counter[bytes]()
    for lane in log.describe().lanes:
        for piece in log.read(lane.first, lane.end):
            found.update(piece.batch.bodies())
    return found


def numbers(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def test_a_batch_is_written_once_and_a_job_that_is_repeated_too(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    write(rows(spark, 5_000), orders, destination=name, jobId="nightly")
    assert written(orders, name) == numbers(5_000)
    write(rows(spark, 5_000, 5).orderBy(f.rand()), orders, destination=name, jobId="nightly")
    assert written(orders, name) == numbers(5_000)
    write(rows(spark, 10), orders, destination=name)
    assert sum(written(orders, name).values()) == 5_010
    described = orders.request("destination.describe", name=name)
    assert (described["staged"], described["staged_dropped"]) == (0, 0)


def test_columns_of_the_source_are_taken_back(spark: SparkSession, orders: Orders) -> None:
    source, copy = orders.create("a"), orders.create("b")
    orders.send(
        "a", 300, priority=7, correlation_id="c", reply_to="answers", type="t", group="g", ttl_s=3_600.0
    )
    orders.session.send(source, "text")
    orders.session.flush(60)
    write(orders.read(spark, subscribe=source, includeHeaders=True), orders, destination=copy)
    told = ["priority", "expiration", "correlation_id", "reply_to", "type", "group_id", "content", "properties", "body"]

    def seen(name: str) -> list[str]:
        frame = orders.read(spark, subscribe=name, columns=",".join(told))
        return sorted(json.dumps(row.asDict(), default=str, sort_keys=True) for row in frame.collect())

    assert seen(copy) == seen(source)
    write(orders.read(spark, subscribe=source), orders)  # the column says where to
    assert len(seen(source)) == 602


def test_destinations_from_a_column_are_created_as_the_kind_that_is_given(spark: SparkSession, orders: Orders) -> None:
    frame = rows(spark, 1_000).withColumn(
        "destination", f.concat(f.lit(orders.name("d")), (f.crc32("body") % 7).cast("string"))
    )
    write(frame, orders, kind="queue")
    names = [orders.name(f"d{number}") for number in range(7)]
    assert sum((written(orders, name) for name in names), Counter()) == numbers(1_000)


def test_a_task_that_fails_after_staging_is_done_again(spark: SparkSession, orders: Orders, tmp_path: Path) -> None:
    """All attempts of it fail, so the job does, and is repeated by the user."""
    name, mark = orders.create(), str(tmp_path / "mended")

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1 and not Path(mark).exists():
            raise RuntimeError("planted")

    frame = rows(spark, 4_000).mapInArrow(failing, "body binary")
    with pytest.raises(Exception, match="planted"):
        write(frame, orders, destination=name, jobId="job")
    assert written(orders, name) == Counter()
    Path(mark).touch()
    write(frame, orders, destination=name, jobId="job")
    assert written(orders, name) == numbers(4_000)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"body": "repeat('x', 2000000)"}, "body_bytes_max"),
        ({"body": "NULL"}, "NULL"),
        ({"priority": "12"}, "priority 12"),
        ({"properties": "map('no name', 'x')"}, "no name"),
        ({"destination": "'not a name'"}, "not a name"),
    ],
)
def test_a_row_that_no_broker_takes_is_named(
    spark: SparkSession, orders: Orders, columns: dict[str, str], told: str
) -> None:
    name = orders.create()
    good = {"body": "'ok'", "destination": f"'{name}'", "priority": "4", "properties": "map('n', 'x')"}
    wanted = [f"IF(id = 3, {columns.get(key, value)}, {value}) AS {key}" for key, value in good.items()]
    frame = spark.range(0, 5, 1, 1).selectExpr(*wanted)
    with pytest.raises(Exception, match=rf"(?s)row 4 of partition 0: .*{told}"):
        write(frame, orders)
    assert written(orders, name) == Counter()


def test_bad_rows_go_to_the_dead_message_queue_once_if_that_is_wanted(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    is_bad = f.col("body").cast("string").cast("int") % 100 == 7
    frame = rows(spark, 1_000).withColumn("priority", f.when(is_bad, 12).otherwise(4))
    for _ in range(2):
        write(frame, orders, destination=name, jobId="nightly", badRows="dmq")
    assert sum(written(orders, name).values()) == 990
    page = orders.request("dmq.summary", destination=name)
    assert [(found["reason"], found["count"]) for found in page["groups"]] == [("bad-row", 10)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "x"}, "valid for writing are address, badRows, destination"),
        ({"destination": "not a name"}, "option 'destination'"),
        ({"kind": "list"}, "option 'kind'"),
        ({"producerId": "p", "destination": "x"}, "option 'producerId'"),
        ({}, "where to"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    spark: SparkSession, orders: Orders, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        write(rows(spark, 1), orders, **options)


def test_columns_that_no_message_has_are_refused(spark: SparkSession, orders: Orders) -> None:
    with pytest.raises(Exception, match="column 'bodi' is none"):
        write(rows(spark, 1).withColumnRenamed("body", "bodi"), orders, destination="x")
    with pytest.raises(Exception, match="column 'priority' is of string"):
        write(rows(spark, 1).withColumn("priority", f.lit("9")), orders, destination="x")


# -- streams -----------------------------------------------------------------------------------------------


def drain(frame: DataFrame, orders: Orders, name: str, **options: Any) -> None:
    """Run the stream to the end of what there is now, into a destination."""
    writer = (
        frame.writeStream.format("angarium")
        .option("address", orders.address)
        .option("checkpointLocation", str(orders.directory / "checkpoint"))
        .options(**{"destination": name, **options})
        .trigger(availableNow=True)
    )
    for patience in reversed(range(STARTS_MAX)):
        try:
            writer.start().awaitTermination()
        except Exception as error:
            if TOO_SLOW not in str(error) or not patience:
                raise
        else:
            return


def forget_last_commit(orders: Orders) -> None:
    """As if Spark had died after the sink's commit and before its own: it will repeat the last batch."""
    commits = orders.directory / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_is_written_once_also_a_batch_that_spark_repeats(spark: SparkSession, orders: Orders) -> None:
    source, target = orders.create("a"), orders.create("b")
    orders.send("a", 2_000)
    frame = orders.stream(spark, subscribe=source, maxOffsetsPerTrigger=600, minPartitions=2)
    drain(frame, orders, target)
    assert written(orders, target) == Counter(orders.sent[source])
    for _ in range(2):
        forget_last_commit(orders)
        drain(frame, orders, target)
    orders.send("a", 100)
    drain(frame, orders, target)
    assert written(orders, target) == Counter(orders.sent[source])
    assert orders.request("destination.describe", name=target)["staged"] == 0


def test_a_producer_id_of_the_users_own_outlives_a_checkpoint(spark: SparkSession, orders: Orders) -> None:
    source, target = orders.create("a"), orders.create("b")
    orders.send("a", 1_000)
    frame = orders.stream(spark, subscribe=source, maxOffsetsPerTrigger=300)
    drain(frame, orders, target, producerId="sums")
    shutil.rmtree(orders.directory / "checkpoint")
    drain(frame, orders, target, producerId="sums")
    assert written(orders, target) == Counter(orders.sent[source]), "the same data in the same steps"
    orders.send("a", 100)
    drain(frame, orders, target, producerId="sums")
    assert written(orders, target) == Counter(orders.sent[source]), "and what is new"
    shutil.rmtree(orders.directory / "checkpoint")
    drain(frame, orders, target)
    assert set(written(orders, target).values()) == {2}, "without it another checkpoint is another query"


# -- the guide ---------------------------------------------------------------------------------------------


def send_at(orders: Orders, name: str, bodies: list[str], minute: int, job: str) -> None:
    """As a sender whose clock shows that minute."""
    gathered = Gathered(1_700_000_040_000 + 60_000 * minute)
    for body in bodies:
        gathered.append(body.encode())
    stage = orders.connection.stage(job, 0)
    stage.send(name, [gathered])
    orders.connection.commit_stage(job, 0, stage.finish())


def test_the_example_of_the_guide(spark: SparkSession, orders: Orders) -> None:
    page = (Path(__file__).parents[2] / "docs/guide/spark.md").read_text(encoding="utf-8")
    program = page[page.index("### An example") :].split("```python\n")[1].split("```\n")[0]
    incoming, outgoing = orders.create("orders"), orders.create("sums", kind="topic")
    program = program.replace('("subscribe", "orders")', f'("subscribe", "{incoming}")')
    program = program.replace("angarium://localhost", orders.address).replace('"sums"', f'"{outgoing}"')
    program = program.replace('"checkpoint"', f'"{orders.directory / "checkpoint"}"')
    for minute in (0, 1, 10):
        some = [json.dumps({"article": f"a{number % 3}", "amount": number}) for number in range(30)]
        send_at(orders, incoming, some, minute, f"minute {minute}")
    for run in range(3):
        with setting(spark, "spark.sql.shuffle.partitions", "2"):  # which the program changes
            exec(program, {})  # as a user would start it again and again
        send_at(orders, incoming, [json.dumps({"article": "a0", "amount": 1})], 10, f"run {run}")
    found = [json.loads(body) for body in written(orders, outgoing).elements()]
    told = sorted((one["minute"], one["article"], one["amount"], one["orders"]) for one in found)
    sums = {article: float(sum(range(article, 30, 3))) for article in range(3)}
    minutes = ["2023-11-14T22:14:00.000Z", "2023-11-14T22:15:00.000Z"]
    assert told == [(minute, f"a{article}", sums[article], 10) for minute in minutes for article in range(3)]
