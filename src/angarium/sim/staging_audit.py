"""Exactly once: the audit of what is staged.

Every row carries the label of the attempt that staged it, so that the disk tells whose rows a log has:
- a row of a batch is in its log at most once, whoever staged it how often;
- what is in the log was staged by attempts that one and the same commit names, and no other ever adds to it;
- the rows of an attempt come in the order in which it staged them, without a gap;
- what is moved into the log leaves what is staged in the same write, and nothing else leaves it that was not aborted,
  overtaken by a commit of its query, or left alone for `keep_s`;
- a commit that is answered has all that it names in the log, or another one of the same batch has;
- what nobody commits is gone after `keep_s`.

It watches the disk as groups become durable, and what the message manager hears and says; never its tables.
"""
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import msgspec

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.destination.records import DestinationRecord
from angarium.core.moving.records import PLACED_KEY, ArrivalRecord
from angarium.core.storage import DeleteRange, Operation, Put, Table
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.sim.messages import Violation

_LATE_S_MAX = 1.0  # from when it is due until it is dropped, of a broker that has nothing else to do
_TOLERANCE = 0.98  # clocks that go wrong by a hundredth, each


class Stage(NamedTuple):
    query: str
    batch: int
    destination: str


@dataclass(slots=True, eq=False)
class Attempt:
    """What one producer stages."""

    label: bytes
    stage: Stage
    rows: list[int]  # in the order in which they are staged
    identity: bytes = b""  # of the producer
    sent: int = 0  # so many has the application published
    heard_at: dict[int, float] = field(default_factory=dict)  # when the manager did of each, by index
    in_log: int = 0
    staged: set[int] = field(default_factory=set)  # indices of rows, as the disk has them now
    staged_at: float = 0.0  # when the last of them became durable
    is_aborted: bool = False  # the manager was asked to

    def body(self, index: int) -> bytes:
        return b"%b:%d:%d" % (self.label, index, self.rows[index])


@dataclass(slots=True, eq=False)
class Batchwise:
    """One batch of a query, for one destination."""

    named: list[list[Attempt]] = field(default_factory=list)  # by each commit that was asked for
    winner: list[Attempt] | None = None  # what is in the log is of these
    rows: set[int] = field(default_factory=set)  # in the log
    is_answered: bool = False


class StagingAudit:
    def __init__(self, tally: Counter[str], *, keep_s: float) -> None:
        self._tally = tally
        self._keep_s = keep_s
        self._labels = count(1)
        self._attempts: dict[bytes, Attempt] = {}  # by label
        self._by_identity: dict[bytes, Attempt] = {}
        self._batches: dict[Stage, Batchwise] = {}
        self._asked: dict[tuple[bytes, int], Stage] = {}  # session, number of the request
        self._heard: dict[tuple[str, str], int] = {}  # query, destination -> the last batch that was to be committed
        self._names: dict[int, str] = {}
        self._arriving: dict[int, str] = {}  # ids under which destinations are copied; names, of those that are whole
        self._keys: dict[bytes, tuple[Attempt, list[int]]] = {}  # in the table of what is staged

    # -- from applications ---------------------------------------------------------------------------

    def begin(self, stage: Stage, rows: Sequence[int]) -> Attempt:
        attempt = Attempt(b"s%d" % next(self._labels), stage, list(rows))
        self._attempts[attempt.label] = attempt
        return attempt

    def identified(self, attempt: Attempt, identity: bytes) -> None:
        attempt.identity = identity
        self._by_identity[identity] = attempt

    def asks(self, stage: Stage, attempts: Sequence[Attempt]) -> None:
        """A commit is about to be sent."""
        batch = self._batches.setdefault(stage, Batchwise())
        if not any(set(named) == set(attempts) for named in batch.named):
            batch.named.append(list(attempts))

    def committed(self, stage: Stage, rows: set[int]) -> None:
        """The application is told so, of a batch that has these rows for that destination."""
        batch = self._batches[stage]
        self._check_answered(stage)
        if batch.rows != rows:
            raise Violation("committed is there", f"{stage}: rows {sorted(rows - batch.rows)[:5]} are not")

    # -- from the broker -----------------------------------------------------------------------------

    def manager_started(self) -> None:
        """It knows only what the disk has; of the rest it hears anew."""
        for attempt in self._attempts.values():
            attempt.heard_at = {index: at for index, at in attempt.heard_at.items() if index in attempt.staged}

    def to_manager(self, event: FromSession, now: float) -> None:
        frame = event.frame
        if isinstance(frame, frames.Publish):
            for body in Batch.trusted(event.payload).bodies():
                if (found := self._row(bytes(body))) is not None:
                    found[0].heard_at.setdefault(found[1], now)  # what is sent again is not staged again
        if not isinstance(frame, frames.Request) or not frame.command.startswith("stage."):
            return
        stage = Stage(frame.arguments["query"], frame.arguments["batch"], frame.arguments["name"])
        if frame.command == "stage.abort":
            for identity, _ in frame.arguments["parts"]:
                self._by_identity[identity].is_aborted = True
            return
        self._asked[event.session, frame.number] = stage
        last = self._heard.get((stage.query, stage.destination), -1)
        self._heard[stage.query, stage.destination] = max(last, stage.batch)

    def from_manager(self, command: ToSession) -> None:
        frame = command.frame
        if isinstance(frame, frames.Reply) and not frame.code:
            stage = self._asked.get((command.session, frame.number))
            if stage is not None:
                self._check_answered(stage)
                self._tally["batches committed again"] += self._batches[stage].is_answered
                self._batches[stage].is_answered = True

    def _check_answered(self, stage: Stage) -> None:
        winner = self._batches[stage].winner
        if winner is None:
            raise Violation("committed means durable", f"{stage} is answered, and nothing of it is in the log")
        for attempt in winner:
            if attempt.in_log < len(attempt.rows):
                what = f"{attempt.in_log} of {len(attempt.rows)} rows of {attempt.label!r} are in the log"
                raise Violation("committed means durable", f"{stage} is answered, and {what}")

    # -- from the disk -------------------------------------------------------------------------------

    def synced(self, operations: Sequence[Operation], now: float) -> None:
        arrived: set[tuple[bytes, int]] = set()  # label, index of a row
        left: list[tuple[Attempt, list[int]]] = []
        for operation in operations:
            if isinstance(operation, DeleteRange):
                left += self._deleted(operation) if operation.table == Table.STAGED else []
            elif operation.table == Table.MOVE and operation.key != PLACED_KEY:
                arrival = msgspec.msgpack.decode(operation.value, type=ArrivalRecord)
                self._arriving[arrival.identity] = operation.key.decode() if arrival.is_complete else ""
            elif operation.table == Table.DESTINATION:
                record = msgspec.msgpack.decode(operation.value, type=DestinationRecord)
                self._named(int.from_bytes(operation.key, "big"), record.name)
            elif int.from_bytes(operation.key[:8], "big") in self._arriving:
                continue  # copies of what is elsewhere
            elif operation.table == Table.STAGED:
                self._staged(operation, now)
            elif operation.table == Table.BATCH:
                arrived |= self._arrived(operation)
        gone = {(attempt.label, index) for attempt, indices in left for index in indices}
        if staying := arrived - gone:
            label, index = min(staying)
            what = f"row {index} of {label!r} is in the log, and has not left what is staged"
            raise Violation("what is moved is moved", what)
        for attempt, indices in left:
            if lost := [index for index in indices if (attempt.label, index) not in arrived]:
                self._check_dropped(attempt, lost, now)

    def _named(self, identity: int, name: str) -> None:
        """If it was moved, what is staged is there from now on, under the new id."""
        if self._arriving.pop(identity, None) is not None:
            self._move_keys(name, identity)
        self._names[identity] = name

    def _move_keys(self, name: str, identity: int) -> None:
        earlier = {other.to_bytes(8, "big") for other, found in self._names.items() if found == name}
        new = identity.to_bytes(8, "big")
        self._keys = {new + key[8:] if key[:8] in earlier else key: found for key, found in self._keys.items()}

    def _staged(self, put: Put, now: float) -> None:
        rows = [found for body in Batch.trusted(put.value).bodies() if (found := self._row(bytes(body))) is not None]
        attempt = rows[0][0]
        indices = [index for _, index in rows]
        if put.key in self._keys or attempt.staged & set(indices):
            raise Violation("a row is staged once", f"{attempt.label!r}: {indices[:5]} are staged again")
        self._keys[put.key] = (attempt, indices)
        attempt.staged.update(indices)
        attempt.staged_at = now

    def _deleted(self, operation: DeleteRange) -> list[tuple[Attempt, list[int]]]:
        if len(operation.low) == len(operation.high) == 8:  # all of a destination, which may have been moved
            whose = int.from_bytes(operation.low, "big")
            if self._arriving.pop(whose, None) is not None:
                return []  # a copy that is given up, perhaps for another one
            name = self._names.get(whose, "?")
            for identity in [identity for identity, found in self._arriving.items() if found == name]:
                self._move_keys(name, identity)
        found = [key for key in self._keys if operation.low <= key < operation.high]
        left = [self._keys.pop(key) for key in found]
        for attempt, indices in left:
            attempt.staged.difference_update(indices)
        return left

    def _arrived(self, put: Put) -> set[tuple[bytes, int]]:
        name = self._names[int.from_bytes(put.key[:8], "big")]
        arrived: set[tuple[bytes, int]] = set()
        for body in Batch.trusted(put.value).bodies():
            found = self._row(bytes(body))
            if found is None or found[0].stage.destination != name:  # of others, or among the dead
                continue
            attempt, index = found
            self._check_arrival(attempt, index)
            attempt.in_log += 1
            self._tally["rows moved"] += 1
            arrived.add((attempt.label, index))
        return arrived

    def _row(self, body: bytes) -> tuple[Attempt, int] | None:
        label, _, rest = body.partition(b":")
        attempt = self._attempts.get(label)
        return None if attempt is None else (attempt, int(rest.partition(b":")[0]))

    def _check_arrival(self, attempt: Attempt, index: int) -> None:
        stage, row = attempt.stage, attempt.rows[index]
        batch = self._batches.get(stage, Batchwise())
        if row in batch.rows:
            raise Violation("every row once", f"{stage}: row {row} is in the log again, from {attempt.label!r}")
        if batch.winner is None:
            batch.winner = next((named for named in batch.named if attempt in named), None)
        if batch.winner is None or attempt not in batch.winner:
            what = "no commit names" if batch.winner is None else "the commit that took effect does not name"
            raise Violation("only what is committed is in the log", f"{stage}: {attempt.label!r}, which {what}")
        if index != attempt.in_log:
            what = f"{attempt.label!r}: row {index} after {attempt.in_log}"
            raise Violation("rows of an attempt keep their order", f"{stage}: {what}")
        batch.rows.add(row)

    def _check_dropped(self, attempt: Attempt, indices: list[int], now: float) -> None:
        query, batch, destination = attempt.stage
        self._tally["rows dropped"] += len(indices)
        is_overtaken = self._heard.get((query, destination), -1) >= batch
        rested_s = now - attempt.heard_at[max(indices)]
        if not is_overtaken and not attempt.is_aborted and rested_s < self._keep_s * _TOLERANCE:
            what = f"{attempt.label!r} is dropped {rested_s:.3f} s after its last row came"
            raise Violation("what is staged is kept for its time", f"{attempt.stage}: {what}")

    # -- what is still missing -----------------------------------------------------------------------

    def at_rest(self, now: float) -> None:
        """The broker has nothing to do, and has run for some time."""
        for attempt in self._attempts.values():
            is_due = bool(attempt.staged) and now - attempt.staged_at > self._keep_s / _TOLERANCE + _LATE_S_MAX
            if is_due and self._heard.get((attempt.stage.query, attempt.stage.destination), -1) < attempt.stage.batch:
                raise Violation("what nobody commits is dropped in time", f"{attempt.stage}: {attempt.label!r} is not")

    def unfinished(self) -> Iterator[str]:
        left = [attempt for attempt in self._attempts.values() if attempt.staged]
        yield from (f"{attempt.stage}: {len(attempt.staged)} rows are staged" for attempt in left)
        for stage, batch in self._batches.items():
            if batch.winner is not None and any(attempt.in_log < len(attempt.rows) for attempt in batch.winner):
                yield f"{stage}: only a part of it is in the log"
