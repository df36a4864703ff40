"""What Spark calls: the format `angarium`, in batches and as a stream.

Spark makes these objects in a process for the query's driver, and sends copies of readers to its tasks: so a reader
that travels leaves its connection behind. `stop` may never be called: the process just ends.

Each stream, and many a query, waits for such a process to start: so what only writers, tasks or connections need is
imported when one of them comes.
"""
import time
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from angarium.core.errors import ConfigError, Rejected
from angarium.spark import offsets, planning
from angarium.spark.columns import ALL_COLUMNS, schema_of, type_of
from angarium.spark.losing import lost
from angarium.spark.metadata import Metadata
from angarium.spark.options import EARLIEST, LATEST, SourceOptions, Where, parse_options
from angarium.spark.planning import Range
from angarium.spark.pushdown import Pushed, pushed

if TYPE_CHECKING:
    from angarium.spark.sink import BatchWriter, StreamWriter
    from angarium.spark.sink_options import SinkOptions


class RangesPartition(InputPartition):
    def __init__(self, ranges: list[Range]) -> None:
        super().__init__([tuple(part) for part in ranges])

    @property
    def ranges(self) -> list[Range]:
        return [Range(*part) for part in self.value]


class AngariumDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse_options(self._given)

    @classmethod
    def name(cls) -> str:
        return "angarium"

    def schema(self) -> str:
        return schema_of(self._parsed.columns)

    def reader(self, schema: StructType) -> "AngariumReader":
        self._parsed.refuse_of_batch(self._given)
        kind = FilteringReader if self._parsed.pushes_filters else AngariumReader
        return kind(self._parsed, _checked(schema))

    def streamReader(self, schema: StructType) -> "AngariumStreamReader":
        self._parsed.refuse_of_stream(self._given)
        return AngariumStreamReader(self._parsed, _checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from angarium.spark.sink import BatchWriter
        from angarium.spark.sink_options import parse_sink_options

        options = parse_sink_options(self._given)
        options.refuse_of_batch()
        _check_written(schema, options, overwrite)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        from angarium.spark.sink import StreamWriter
        from angarium.spark.sink_options import parse_sink_options

        options = parse_sink_options(self._given)
        options.refuse_of_stream()
        _check_written(schema, options, overwrite)
        return StreamWriter(options)


def _check_written(schema: StructType, options: "SinkOptions", overwrite: bool) -> None:
    from angarium.spark.rows import check_columns

    if overwrite:
        raise ConfigError("messages cannot be overwritten: use .mode('append'), of a stream .outputMode('append')")
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], options)


def _checked(schema: StructType) -> StructType:
    """A user may give a schema of his own, to read fewer columns."""
    for field in schema.fields:
        if field.name not in ALL_COLUMNS:
            raise ConfigError(f"column {field.name!r} is unknown; there are {', '.join(ALL_COLUMNS)}")
        given, right = field.dataType.simpleString(), type_of(field.name)
        if given != right:
            raise ConfigError(f"column {field.name!r} is of {right}, not {given}: read it so, and cast it")
    return schema


class _Reading:
    """What both kinds of reader have: options, schema, and how a task reads."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._metadata = Metadata(options)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options, self._schema = state["_options"], state["_schema"]
        self._metadata = Metadata(self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangesPartition):  # Spark makes one of its own where there is nothing to read
            return iter(())
        from pyspark.sql.pandas.types import to_arrow_schema

        from angarium.spark.reading import read_ranges

        schema = to_arrow_schema(self._schema, timezone="UTC")
        return read_ranges(partition.ranges, self._options, schema)

    def _split(self, wanted: list[Range]) -> list[InputPartition]:
        return [RangesPartition(task) for task in planning.split(wanted, tasks_min=self._options.partitions_min)]


class AngariumReader(_Reading, DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._pushed = Pushed()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pushed = Pushed()  # only partitions are made by it, and they are made

    def partitions(self) -> list[InputPartition]:
        options, metadata = self._options, self._metadata
        from_, until = options.starting or Where(everywhere=EARLIEST), options.ending or Where(everywhere=LATEST)
        try:
            described = metadata.described()
            if missing := metadata.missing():
                raise Rejected("unknown-destination", f"there is no destination {missing[0]!r}")
            start = planning.resolve(from_, described, metadata.seek, unnamed=EARLIEST)
            end = planning.resolve(until, described, metadata.seek, unnamed=LATEST)
        finally:
            metadata.close()
        planning.check_end(end, described)
        if not (from_.is_time and until.is_time):  # clocks that disagree are no mistake of the user's
            planning.check_order(start, end, described)
        if options.fail_on_data_loss and (gone := planning.losses(start, described)):
            raise lost("; ".join(gone))
        return self._split(self._pushed.narrowed(planning.ranges(start, end)))


class FilteringReader(AngariumReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Reads less by them, and leaves them to Spark all the same."""
        self._pushed = pushed(filters)
        self._options = replace(self._options, selector=self._pushed.selector(self._options.selector))
        return filters


class AngariumStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: offsets.Offsets | None = None  # of an available-now query

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._target = None

    def initialOffset(self) -> dict[str, Any]:
        starting = self._options.starting or Where(everywhere=LATEST)
        described = self._metadata.described()
        start = planning.resolve(starting, described, self._metadata.seek, unnamed=EARLIEST)
        return offsets.to_json(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {found.name: offsets.end(found) for found in self._metadata.described()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Waits a moment if there is nothing new: Spark asks again at once."""
        was = offsets.from_json(start)
        if self._options.reader:
            self._metadata.note(self._options.reader, was)  # all up to here has been processed
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        interval_s = self._options.poll_interval_s
        described = self._metadata.described(max_age_s=interval_s)
        end = self._advanced(was, described, rows)
        if end == was and self._target is None:
            time.sleep(interval_s)
            end = self._advanced(was, self._metadata.described(max_age_s=interval_s / 2), rows)
        return offsets.to_json(end)

    def _advanced(self, was: offsets.Offsets, described: list[Any], rows: int | None) -> offsets.Offsets:
        if self._options.fail_on_data_loss and (gone := planning.losses(was, described)):
            raise lost("; ".join(gone))
        return planning.advance(was, described, limit=rows, cap=self._target)

    def reportLatestOffset(self) -> dict[str, Any]:
        described = self._metadata.described(max_age_s=self._options.poll_interval_s)
        return offsets.to_json({found.name: offsets.end(found) for found in described})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._split(planning.ranges(offsets.from_json(start), offsets.from_json(end)))

    def stop(self) -> None:
        self._metadata.close()
