"""Parquet back into destinations: what an archive has, or some of it, in order, at a rate, once.

A replay has a name, and notes beside the archive how far it is, for each destination and priority. It stages its
messages and commits them chunk by chunk, as a job of Spark's sink does (`client.staging`): each chunk under a number,
which is noted before with where the chunk ends. After a crash the last that was noted is staged and committed again;
of a destination that has taken it before, nothing of it is published. So every message arrives once, unless as many
other queries as a destination remembers (`staged_queries_max`) have written to it meanwhile. Run again, it goes on with
what was archived since.

A message keeps its body, properties, priority, type, correlation id, reply-to and group. It gets a new id and time; it
does not expire, and is not delayed.
"""
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from angarium.client import blocking
from angarium.client.fields import MessageFields, decode_map, decode_reply_to, make_options
from angarium.client.staging import StagedPart
from angarium.core.client.gathered import Gathered
from angarium.core.destination.selecting import compiled
from angarium.core.errors import ConfigError, Rejected
from angarium.core.malformed import MALFORMED
from angarium.core.names import check_name
from angarium.core.patterns import NamePattern, is_glob
from angarium.core.selector.fields import WithHeaders
from angarium.core.wire.frames import LANE_BITS, PatternSyntax
from angarium.spark.pipelines import manifest, places
from angarium.spark.pipelines.archive import read_archive
from angarium.spark.pipelines.files import locked
from angarium.spark.pipelines.manifest import ArchivedFile, write_whole

DIRECTORY = "_replays"
CHUNK = 1_000  # messages of one commit, at most
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
    ago: tuple[str, ...] = ()  # which of the two times were said as times ago: they count from the first run on


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    address: tuple[str, ...]
    archive: Path
    name: str
    selection: ReplaySelection
    rate: float = 0.0  # messages a second; 0: as fast as they are taken


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    selection: ReplaySelection
    job: str  # its own name for brokers, so that no other replay of that name is taken for it
    replayed: dict[str, int] = {}  # "identity/lane" -> one past the last position
    begun: dict[str, int] = {}  # the same, of what was to be committed next; empty: nothing was
    batch: int = 0  # the number of that commit, or of the next one

    @property
    def query(self) -> str:
        return f"replay:{self.job}"


@dataclass(slots=True)
class ReplayResult:
    sent: dict[str, int] = field(default_factory=dict)  # in this run, by where it went
    bodies_elsewhere: int = 0  # without a body, since it was sent as a stream: not replayed
    state: ReplayState | None = None


def check(settings: ReplaySettings) -> None:
    """Raise what would come to light otherwise when Spark has started."""
    if not _NAME.fullmatch(settings.name):
        raise ConfigError(f"--name {settings.name!r}: use up to 64 letters, digits, '.', '-' and '_'")
    compiled(settings.selection.selector)  # one that is wrong is refused before anything is sent
    if settings.selection.into:
        check_name(settings.selection.into)
    selection = load_state(settings.archive / DIRECTORY / settings.name, settings.selection).selection
    chosen = _chosen(settings.archive, selection)
    with places.asked(settings.address) as connection:
        _check_destinations(connection, chosen, selection)


def _chosen(archive: Path, selection: ReplaySelection) -> list[ArchivedFile]:
    chosen = [file for file in manifest.load(archive).files if _concerns(file, selection)]
    if not chosen:
        raise ConfigError(f"the archive {archive} has nothing of what is asked for")
    return chosen


def replay(
    spark: SparkSession, settings: ReplaySettings, progress: Progress = lambda done, total: None
) -> ReplayResult:
    check(settings)
    directory = settings.archive / DIRECTORY / settings.name
    lock = locked(settings.archive, f"{DIRECTORY}/{settings.name}")
    with lock, blocking.connect(settings.address, name="replay") as connection:
        state = load_state(directory, settings.selection)
        selection = state.selection
        chosen = _chosen(settings.archive, selection)
        _check_destinations(connection, chosen, selection)
        sending = _Sending(connection, settings, state)
        rows = read_archive(spark, settings.archive, chosen)
        if state.begun:
            again = _left(rows, selection, state).where(_before(state.begun)).collect()
            sending.commit(again)
        frame = _left(rows, selection, sending.state).cache()
        try:
            total = frame.count()
            progress(0, total)
            for passed, row in enumerate(frame.toLocalIterator(prefetchPartitions=True), 1):
                if sending.take(row):
                    progress(passed, total)
            result = sending.end()
            progress(total, total)
            return result
        finally:
            frame.unpersist()


def load_state(directory: Path, selection: ReplaySelection) -> ReplayState:
    """How far the replay is that is noted there, or a new one."""
    path = directory / "state.json"
    if not path.exists():
        return ReplayState(selection=selection, job=f"{directory.name}:{uuid4().hex}")
    try:
        state = msgspec.json.decode(path.read_bytes(), type=ReplayState)
    except MALFORMED as error:
        remedy = "to replay all again, choose another --name"
        raise ConfigError(f"{path} is not the state of a replay ({error}): {remedy}") from None
    first = {name: getattr(state.selection, name) for name in selection.ago}
    if state.selection != replace(selection, **first):
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
        conditions.append(~_in_lane(key) | (f.col("position") >= following))
    for condition in conditions:
        frame = frame.where(condition)
    wanted = ("destination", "identity", "position", "timestamp", "message_id", "priority", "headers_packed",
              "properties_packed", "body")  # fmt: skip
    return frame.select(*wanted, f.unix_millis("timestamp").alias("timestamp_ms")).orderBy("identity", "position")


def _in_lane(key: str) -> Column:
    identity, lane = map(int, key.split("/"))
    return (f.col("identity") == identity) & (f.shiftright("position", LANE_BITS) == lane)


def _before(followings: dict[str, int]) -> Column:
    """In one of these lanes, and before where it is followed."""
    parts = [_in_lane(key) & (f.col("position") < following) for key, following in followings.items()]
    return reduce(or_, parts)


class _Sending:
    """One run: rows in, staged, noted and committed chunk by chunk."""

    def __init__(self, connection: blocking.Connection, settings: ReplaySettings, state: ReplayState) -> None:
        self._connection = connection
        self._settings = settings
        self._path = settings.archive / DIRECTORY / settings.name / "state.json"
        self._began: float | None = None  # when the first was about to be staged
        # Of what is sent at a rate, no more becomes visible at once than there is to be in a second.
        self._chunk_max = min(CHUNK, max(1, int(settings.rate))) if settings.rate else CHUNK
        self._chunk: list[Row] = []
        self._state = state
        self._result = ReplayResult(state=state)

    @property
    def state(self) -> ReplayState:
        return self._state

    def take(self, row: Row) -> bool:
        """Whether a chunk was committed with it."""
        self._chunk.append(row)
        if len(self._chunk) < self._chunk_max:
            return False
        self.commit(self._chunk)
        return True

    def commit(self, rows: list[Row]) -> None:
        """Under a number that is noted together with which rows it is for, so that it never stands for others."""
        self._chunk = []
        followings = {_lane_key(row): row.position + 1 for row in rows}
        state = self._state
        parts = self._staged(rows)
        self._note(replace(state, begun=followings))
        if parts:
            self._connection.commit_stage(state.query, state.batch, parts)
        # That it is done is noted with the next one, or at the end.
        self._state = replace(state, replayed=state.replayed | followings, batch=state.batch + 1, begun={})

    def end(self) -> ReplayResult:
        if self._chunk:
            self.commit(self._chunk)
        self._note(self._state)
        self._result.state = self._state
        return self._result

    def _note(self, state: ReplayState) -> None:
        write_whole(self._path, msgspec.json.encode(state))

    def _staged(self, rows: list[Row]) -> list[StagedPart]:
        selection, sent = self._settings.selection, self._result.sent
        gathered: dict[str, list[Gathered]] = {}
        for row in rows:
            if row.body is None:
                self._result.bodies_elsewhere += 1
            elif _selects(selection.selector, row):
                into = selection.into or row.destination
                _gather(gathered.setdefault(into, []), row)
                sent[into] = sent.get(into, 0) + 1
        if not gathered:
            return []
        self._keep_to_rate(sum(sent.values()))  # before: what is staged is not kept for ever
        stage = self._connection.stage(self._state.query, self._state.batch)
        for into, messages in gathered.items():
            stage.send(into, messages)
        return stage.finish()

    def _keep_to_rate(self, count: int) -> None:
        """So many are sent once this chunk is: that takes its time from when the first chunk was gathered."""
        if self._began is None:
            self._began = time.monotonic()
        if self._settings.rate:
            ahead_s = count / self._settings.rate - (time.monotonic() - self._began)
            if ahead_s > 0:
                time.sleep(ahead_s)


def _lane_key(row: Row) -> str:
    return f"{row.identity}/{row.position >> LANE_BITS}"


def _gather(messages: list[Gathered], row: Row) -> None:
    headers = decode_map(bytes(row.headers_packed or b""))
    fields: MessageFields = {
        "priority": row.priority,
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
    now_ms = int(time.time() * 1_000)
    one = Gathered(now_ms)
    one.append(bytes(row.body), make_options(headers.get("content"), now_ms=now_ms, **fields))
    if messages and messages[-1].takes(one):
        messages[-1].extend(one)
    else:
        messages.append(one)


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

