"""Parquet back into destinations: what an archive has, or some of it, in order, at a rate, once.

A replay has a name, and notes beside the archive how far it is, for each destination and priority, whenever what it
sent is confirmed. What it sent since it last noted that is sent again after a crash, under the same deduplication
ids: so it arrives once, as long as nobody else sends `IDS_MARGIN` messages with such ids to the destination meanwhile.
Run again, it goes on with what was archived since.

A message keeps its body, properties, priority, type, correlation id, reply-to and group. It gets a new id and time; it
does not expire, and is not delayed.
"""
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from angarium.client import blocking
from angarium.client.blocking_session import Session
from angarium.client.fields import MessageFields, decode_body, decode_map, decode_reply_to
from angarium.core.destination.selecting import compiled
from angarium.core.errors import ConfigError, Rejected
from angarium.core.names import check_name
from angarium.core.patterns import NamePattern, is_glob
from angarium.core.selector.fields import WithHeaders
from angarium.core.wire.frames import LANE_BITS, PatternSyntax
from angarium.spark.pipelines import manifest, places
from angarium.spark.pipelines.archive import read_archive
from angarium.spark.pipelines.files import locked
from angarium.spark.pipelines.manifest import ArchivedFile, write_whole

DIRECTORY = "_replays"
CHUNK = 1_000  # messages between two notes: what a crash makes it send again
IDS_MARGIN = 8_000  # of the 10,000 deduplication ids that a destination remembers, what others may use meanwhile
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
Progress = Callable[[int, int], None]


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed where: the same in all runs of one name."""

    destinations: tuple[str, ...] = ()  # of the archive: names and globs; none: all
    into: str = ""  # where everything goes; empty: to where it was
    from_ms: int | None = None  # by when it was sent
    to_ms: int | None = None
    position_from: int | None = None
    position_to: int | None = None  # excluded, as the time
    selector: str = ""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    address: tuple[str, ...]
    archive: Path
    name: str
    selection: ReplaySelection
    rate: float = 0.0  # messages a second; 0: as fast as they are taken


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    selection: ReplaySelection
    replayed: dict[str, int] = {}  # "identity/lane" -> one past the last position


@dataclass(slots=True)
class ReplayResult:
    sent: dict[str, int] = field(default_factory=dict)  # in this run, by where it went
    bodies_elsewhere: int = 0  # without a body, since it was sent as a stream: not replayed
    state: ReplayState | None = None


def replay(
    spark: SparkSession, settings: ReplaySettings, progress: Progress = lambda done, total: None
) -> ReplayResult:
    if not _NAME.fullmatch(settings.name):
        raise ConfigError(f"--name {settings.name!r}: use up to 64 letters, digits, '.', '-' and '_'")
    compiled(settings.selection.selector)  # one that is wrong is refused before anything is sent
    if settings.selection.into:
        check_name(settings.selection.into)
    directory = settings.archive / DIRECTORY / settings.name
    lock = locked(settings.archive, f"{DIRECTORY}/{settings.name}")
    with lock, blocking.connect(settings.address, name="replay") as connection:
        state = _load(directory, settings.selection)
        chosen = [file for file in manifest.load(settings.archive).files if _concerns(file, settings.selection)]
        if not chosen:
            raise ConfigError(f"the archive {settings.archive} has nothing of what is asked for")
        _check_destinations(connection, chosen, settings.selection)
        frame = _left(read_archive(spark, settings.archive, chosen), settings.selection, state).cache()
        try:
            total = frame.count()
            progress(0, total)
            return _send(frame, connection, settings, state, lambda done: progress(done, total))
        finally:
            frame.unpersist()


def _load(directory: Path, selection: ReplaySelection) -> ReplayState:
    path = directory / "state.json"
    if not path.exists():
        return ReplayState(selection=selection)
    state = msgspec.json.decode(path.read_bytes(), type=ReplayState)
    if state.selection != selection:
        raise ConfigError(f"the replay {directory.name!r} was begun with another selection; choose another --name")
    return state


def _concerns(file: ArchivedFile, selection: ReplaySelection) -> bool:
    if selection.destinations and not any(_matches(text, file.destination) for text in selection.destinations):
        return False
    low, high = selection.position_from, selection.position_to
    return (low is None or file.position_last >= low) and (high is None or file.position_first < high)


def _matches(text: str, name: str) -> bool:
    return NamePattern(text, PatternSyntax.GLOB).matches(name) if is_glob(text) else text == name


def _check_destinations(
    connection: blocking.Connection, chosen: Sequence[ArchivedFile], selection: ReplaySelection
) -> None:
    """They are not made here: an archive does not know whether it was a queue or a topic."""
    for name in sorted({selection.into or file.destination for file in chosen}):
        if not places.exists(connection, name):
            raise Rejected("unknown-destination", f"there is no destination {name!r}: angarium create {name}")


def _left(frame: DataFrame, selection: ReplaySelection, state: ReplayState) -> DataFrame:
    conditions = []
    if selection.from_ms is not None:
        conditions.append(f.unix_millis("timestamp") >= selection.from_ms)
    if selection.to_ms is not None:
        conditions.append(f.unix_millis("timestamp") < selection.to_ms)
    if selection.position_from is not None:
        conditions.append(f.col("position") >= selection.position_from)
    if selection.position_to is not None:
        conditions.append(f.col("position") < selection.position_to)
    for key, following in state.replayed.items():
        identity, lane = map(int, key.split("/"))
        mine = (f.col("identity") == identity) & (f.shiftright("position", LANE_BITS) == lane)
        conditions.append(~mine | (f.col("position") >= following))
    for condition in conditions:
        frame = frame.where(condition)
    wanted = ("destination", "identity", "position", "timestamp", "message_id", "priority", "headers_packed",
              "properties_packed", "body")  # fmt: skip
    return frame.select(*wanted, f.unix_millis("timestamp").alias("timestamp_ms")).orderBy("identity", "position")


def _send(
    frame: DataFrame,
    connection: blocking.Connection,
    settings: ReplaySettings,
    state: ReplayState,
    progress: Callable[[int], None],
) -> ReplayResult:
    result = ReplayResult(state=state)
    session = connection.session()
    began, passed = time.monotonic(), 0
    chunk: list[Row] = []

    def finish() -> None:
        """All of the chunk is confirmed: note it."""
        nonlocal state, chunk
        session.flush()
        followings = {f"{row.identity}/{row.position >> LANE_BITS}": row.position + 1 for row in chunk}
        state = msgspec.structs.replace(state, replayed=state.replayed | followings)
        path = settings.archive / DIRECTORY / settings.name / "state.json"
        write_whole(path, msgspec.json.encode(state))
        result.state, chunk = state, []

    for row in frame.toLocalIterator(prefetchPartitions=True):
        chunk.append(row)
        passed += 1
        if row.body is None:
            result.bodies_elsewhere += 1
        elif _selects(settings.selection.selector, row):
            into = settings.selection.into or row.destination
            _send_one(session, into, row, settings.name)
            result.sent[into] = result.sent.get(into, 0) + 1
            _keep_to(settings.rate, began, sum(result.sent.values()))
        if len(chunk) >= CHUNK:
            finish()
            progress(passed)
    if chunk:
        finish()
    progress(passed)
    return result


def _keep_to(rate: float, began: float, count: int) -> None:
    if rate:
        ahead_s = count / rate - (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(ahead_s)


def _send_one(session: Session, into: str, row: Row, name: str) -> None:
    headers = decode_map(bytes(row.headers_packed or b""))
    fields: MessageFields = {
        "priority": row.priority,
        "deduplication_id": f"replay/{name}/{row.identity:x}/{row.position:x}",
        "correlation_id": headers.get("correlation_id"),
        "reply_to": decode_reply_to(headers),
        "type": headers.get("type"),
        "group": headers.get("group"),
        "group_sequence": headers.get("group_sequence"),
        "last_value_key": headers.get("last_value_key"),
    }
    if row.properties_packed:
        fields["properties"] = decode_map(bytes(row.properties_packed), "properties")
    if headers.get("delivery_mode"):
        fields["delivery_mode"] = "non-persistent"
    session.send(into, decode_body(bytes(row.body), headers.get("content")), **fields)


def _selects(selector: str, row: Row) -> bool:
    match = compiled(selector)
    if match is None:
        return True
    headers = decode_map(bytes(row.headers_packed or b""))
    shown = {
        "JMSPriority": row.priority,
        "JMSTimestamp": row.timestamp_ms,
        "JMSMessageID": row.message_id,
        "JMSCorrelationID": headers.get("correlation_id"),
        "JMSType": headers.get("type"),
        "JMSXGroupID": headers.get("group"),
        "JMSXGroupSeq": headers.get("group_sequence"),
        "JMSDeliveryMode": headers.get("delivery_mode") or "PERSISTENT",
    }
    return match.match(WithHeaders(decode_map(bytes(row.properties_packed or b""), "properties"), shown.get))

