"""Destinations to Parquet: `destination=NAME/day=YYYY-MM-DD/*.parquet`, every message once.

A run goes on from the places in the manifest, some messages at a time. Each time the messages are staged, and the
manifest that names them and the places behind them is written as one file. A run that ends before that has done
nothing; one that ends after it has only left files to be moved, which the next one does (`files`).

Columns are those of the source, and `identity`, the id of the destination: one that is removed and made anew begins
again with position 0, and has another.
"""
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from angarium.client import blocking
from angarium.client.log import LogDescription
from angarium.core.errors import ConfigError
from angarium.spark import offsets, planning
from angarium.spark.columns import ALL_COLUMNS, schema_of
from angarium.spark.losing import lost
from angarium.spark.offsets import Offsets
from angarium.spark.pipelines import files, manifest, places
from angarium.spark.pipelines.compaction import compacted
from angarium.spark.pipelines.manifest import ArchivedFile, Manifest
from angarium.spark.pipelines.session import setting
from angarium.spark.planning import Range

MESSAGES_PER_STEP = 2_000_000  # between two manifests: what a crash makes a run do again
Progress = Callable[[int, int], None]  # messages that are archived in this run, and that are to be


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """A comment for each: meaning, and why this default."""

    address: tuple[str, ...]
    destinations: tuple[str, ...]  # names and globs
    to: Path  # a directory that every worker of Spark reaches by the same path
    messages_per_step: int = MESSAGES_PER_STEP
    allow_gaps: bool = False  # go on without what is gone; else that is an error, since nothing can bring it back
    compact: bool = True  # small files are put together after each run: one directory a day, and few files in it


@dataclass(slots=True)
class ArchiveResult:
    archived: dict[str, int] = field(default_factory=dict)  # messages of this run, by destination
    gaps: list[str] = field(default_factory=list)  # of this run
    files_compacted: int = 0
    bodies_elsewhere: int = 0  # sent as streams: their bodies are not archived
    manifest: Manifest = field(default_factory=Manifest)  # afterwards


def check(settings: ArchiveSettings) -> None:
    """Raise what would come to light otherwise when Spark has started."""
    with places.asked(settings.address) as connection:
        places.described(connection, settings.destinations)
    settings.to.mkdir(parents=True, exist_ok=True)
    manifest.load(settings.to)


def archive(
    spark: SparkSession, settings: ArchiveSettings, progress: Progress = lambda done, total: None
) -> ArchiveResult:
    if settings.messages_per_step < 1:
        raise ConfigError(f"{settings.messages_per_step} messages a step: it takes one at least, to come to an end")
    settings.to.mkdir(parents=True, exist_ok=True)
    result = ArchiveResult()
    with files.locked(settings.to), blocking.connect(settings.address, name="archive") as connection:
        known = manifest.load(settings.to)
        files.settle(settings.to, known)
        target = places.described(connection, settings.destinations)
        known = _begin(known, target, settings, result)
        total = _left(known, target)
        done = 0
        progress(0, total)
        while (left := _left(known, target)) > 0:
            known = _step(spark, settings, known, target, result)
            done += left - _left(known, target)
            progress(done, total)
        if settings.compact:
            known, result.files_compacted = compacted(settings.to, known)
    result.manifest = known
    return result


def _begin(
    known: Manifest, target: Sequence[LogDescription], settings: ArchiveSettings, result: ArchiveResult
) -> Manifest:
    """Where each destination is taken up. What is gone by now is an error, or a gap that is noted."""
    now = offsets.from_json(known.places)
    wanted = {log.name for log in target}
    gone = planning.losses({name: place for name, place in now.items() if name in wanted}, target)
    if gone and not settings.allow_gaps:
        raise lost("; ".join(gone))
    result.gaps = list(gone)
    begun = dict(now)
    for log in target:
        was = now.get(log.name)
        if was is None or was.identity != log.identity:
            begun[log.name] = offsets.beginning(log)
            continue
        places_now = {offsets.lane_of(lane): _resumed(was.in_lane(lane), lane.first, lane.end) for lane in log.lanes}
        begun[log.name] = offsets.Place(log.identity, places_now)
    resumed = msgspec.structs.replace(known, places=offsets.to_json(begun), gaps=[*known.gaps, *gone])
    if gone:
        manifest.save(settings.to, resumed)  # told once, also if nothing else is to be done
    return resumed


def _resumed(at: int, first: int, end: int) -> int:
    return first if at > end else max(at, first)


def _ends(target: Sequence[LogDescription]) -> Offsets:
    return {log.name: offsets.end(log) for log in target}


def _left(known: Manifest, target: Sequence[LogDescription]) -> int:
    ends = _ends(target)
    return places.count(offsets.from_json(known.places), ends, ends)


def _step(
    spark: SparkSession,
    settings: ArchiveSettings,
    known: Manifest,
    target: Sequence[LogDescription],
    result: ArchiveResult,
) -> Manifest:
    start = offsets.from_json(known.places)
    end = planning.advance(start, target, limit=settings.messages_per_step, cap=_ends(target))
    wanted = planning.ranges(start, end)
    names = sorted({part.destination for part in wanted})
    generation = known.generation + 1
    frame = _frame(spark, settings, {name: start[name] for name in names}, {name: end[name] for name in names})
    staging = files.staging_of(settings.to, generation)
    dated = frame.withColumn("day", f.date_format("timestamp", "yyyy-MM-dd"))
    # As everybody but Spark writes times, so that files may be put together by others.
    with setting(spark, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
        dated.write.mode("overwrite").partitionBy("destination", "day").parquet(str(staging))
    written = files.staged_files(settings.to, generation)
    missing = _missing(wanted, written)
    if missing and not settings.allow_gaps:
        raise lost("; ".join(missing))
    result.gaps += missing
    advanced = Manifest(
        generation=generation,
        places=offsets.to_json({**start, **end}),
        gaps=[*known.gaps, *missing],
        files=[*known.files, *written],
    )
    manifest.save(settings.to, advanced)
    files.settle(settings.to, advanced)
    for file in written:
        result.archived[file.destination] = result.archived.get(file.destination, 0) + file.rows
        result.bodies_elsewhere += file.bodies_elsewhere
    return advanced


def _missing(wanted: Sequence[Range], written: Sequence[ArchivedFile]) -> list[str]:
    """What was there when the step was planned, and was not read: freed in between, or damaged."""
    told: list[str] = []
    for name in sorted({part.destination for part in wanted}):
        parts = [part for part in wanted if part.destination == name]
        read = sum(file.rows for file in written if file.destination == name)
        count = sum(part.high - part.low for part in parts) - read
        if count:
            where = ", ".join(f"{part.low} to {part.high - 1}" for part in parts)
            told.append(f"{name!r}: {count:,} of positions {where} are gone or damaged")
    return told


def _frame(spark: SparkSession, settings: ArchiveSettings, start: Offsets, end: Offsets) -> DataFrame:
    frame = (
        spark.read.format("angarium")
        .option("address", ",".join(settings.address))
        .option("subscribe", ",".join(start))
        .option("startingOffsets", json.dumps(places.whole_json(start)))
        .option("endingOffsets", json.dumps(places.whole_json(end)))
        .option("failOnDataLoss", str(not settings.allow_gaps).lower())
        .option("columns", ",".join(ALL_COLUMNS))
        .load()
    )
    identities = f.create_map(*(f.lit(part) for name, place in start.items() for part in (name, place.identity)))
    return frame.withColumn("identity", identities[f.col("destination")])


def read_archive(spark: SparkSession, root: Path, chosen: Sequence[ArchivedFile] | None = None) -> DataFrame:
    """What the manifest names, or those of its files: every message once, also while a run goes on."""
    named = manifest.load(root).files if chosen is None else chosen
    reader = spark.read.option("basePath", str(root)).schema(schema())
    return reader.parquet(*(str(root / file.path) for file in named)) if named else spark.createDataFrame([], schema())


def schema() -> str:
    return f"{schema_of(ALL_COLUMNS).replace(' not null', '')}, identity bigint, day string"


def summary(result: ArchiveResult) -> dict[str, Any]:
    """For programs."""
    known = result.manifest
    return {
        "archived": result.archived,
        "gaps": result.gaps,
        "bodies_elsewhere": result.bodies_elsewhere,
        "rows": known.rows,
        "files": len(known.files),
        "bytes": sum(file.bytes for file in known.files),
        "places": known.places,
    }
