"""What Spark calls to write: in batches and as a stream, each row once (ADR 19).

A task stages its rows, and tells what it has staged; the driver commits what the tasks that won have told, under the
name of the job or the stream and the number of the batch. The broker takes each such number once, however often Spark
repeats it. What failed tasks have staged is dropped with the commit, or in time.

Spark makes these objects in one process, and sends copies to tasks, and to where it commits.
"""
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from angarium.client import blocking
from angarium.client.staging import StagedPart
from angarium.core.errors import AngariumError, LocalProtocolError
from angarium.spark import process
from angarium.spark.rows import RowReader
from angarium.spark.sink_options import SinkOptions

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of a stream's tasks
_ABANDON_S_MAX = 5.0


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells."""

    query: str
    batch: int
    parts: list[StagedPart]


def write_rows(options: SinkOptions, query: str, batch: int, rows: Iterator[Any]) -> Staged:
    """A task: stage all rows. One that has none, as most have after a shuffle, does not trouble the broker."""
    some = (each for each in rows if each.num_rows)
    first = next(some, None)
    if first is None:
        return Staged(query, batch, [])
    process.prepare()
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    with blocking.connect(options.address, name="spark") as connection:
        stage = connection.stage(query, batch)
        reader = RowReader(options, connection.limits, partition)
        try:
            for each in chain([first], some):
                for name, messages in reader.messages(each):
                    stage.send(options.named(name), messages)
            return Staged(query, batch, stage.finish())
        except BaseException:
            with suppress(AngariumError):
                stage.abandon(_ABANDON_S_MAX)
            raise


def end(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], *, commit: bool) -> None:
    """The driver: commit what the tasks have staged, or drop it."""
    staged = [message for message in messages if isinstance(message, Staged)]
    parts = [part for message in staged for part in message.parts]
    if not parts:
        return
    query, batch = staged[0].query, staged[0].batch
    if any((message.query, message.batch) != (query, batch) for message in staged):
        raise LocalProtocolError(f"tasks of several batches in one commit: {query!r}, {batch} is the first")
    with blocking.connect(options.address, name="spark") as connection:
        if commit:
            connection.commit_stage(query, batch, parts)
        else:
            with suppress(AngariumError):  # it goes in time
                connection.abort_stage(query, batch, parts, _ABANDON_S_MAX)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = f"job:{options.job or uuid4()}"

    def write(self, iterator: Iterator[Any]) -> Staged:
        return write_rows(self._options, self._job, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        end(self._options, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        end(self._options, messages, commit=False)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if query is None or batch is None:
            raise LocalProtocolError(f"a task of a stream without {_QUERY_ID} and {_BATCH_ID}: use Spark 4.3 or later")
        return write_rows(self._options, f"stream:{self._options.producer or query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        end(self._options, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        end(self._options, messages, commit=False)
