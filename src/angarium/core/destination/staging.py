"""Messages that are staged: kept beside the log until a commit names them, then moved into it, once.

    Publish, of a producer with a stage --> STAGED table, by part
    stage.commit --beyond what the query has committed--> one write decides: the parts named, all others of it dropped
                     --> ReadDelayed --DelayedRead--> one write: out of the table, into the log  ...  --> answered
                 --not beyond it--> dropped, and answered once all is moved: it was done before
    stage.abort, or not used for `staged_keep_s` --> dropped

A query numbers its batches, ascending. Whoever repeats a batch stages its rows again, in whatever order and parts, and
commits it again: only the first commit counts. A commit names each part with the number of its messages, and is refused
as a whole unless all of them are durable here. What is decided is moved, in bounded writes, also after a restart:
what is moved is no longer in the table, so the tables alone say how far it is.
"""
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from angarium.core.destination import bad_rows, singles
from angarium.core.destination.events import Command, DelayedRead, ReadDelayed, ToSession
from angarium.core.destination.pending import PendingDelayed, PendingWrite
from angarium.core.destination.producers import Producer
from angarium.core.destination.staged_parts import (
    Commit,
    Part,
    delete_staged,
    restored_commit,
    restored_part,
    staged_key,
)
from angarium.core.destination.state import DestinationState
from angarium.core.errors import Rejected
from angarium.core.names import DEAD_MESSAGE_QUEUE
from angarium.core.report import Level, Report
from angarium.core.storage import Operation, Put, Table
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns

READ_BYTES_MAX = 4 << 20  # of one read
WRITE_BYTES_MAX = 1 << 20  # of one write, or one batch
PARTS_READ_MAX = 100  # in one read
ANSWERS_MAX = 100  # to those who repeat one commit
_KEY_BYTES = 8 + 16  # destination and part, before the sequence
_STREAM = int(Columns.STREAM)
NamedParts = list[tuple[bytes, int]]  # with the number of messages in each


class LogTaker(Protocol):
    """The way into the log, which `publishing` is."""

    @property
    def hindrance(self) -> tuple[str, str] | None:
        """Code and reason, while nothing more can be taken."""

    def take(self, batch: Batch, pending: PendingWrite, *, now: float) -> list[Operation]: ...

    def check_count(self, count: int) -> None:
        """Raise `Rejected` if so many messages would be refused."""


class Staging:
    def __init__(self, state: DestinationState, log: LogTaker) -> None:
        self._state = state
        self._log = log
        self.parts: dict[bytes, Part] = {}  # neither committed nor dropped; the least recently used first
        self.commits: dict[str, Commit] = {}  # by query; the same
        self.dropped = 0  # messages that nobody committed in time
        self._row: deque[Commit] = deque()  # those that have something to move
        self._is_moving = False  # a read, or the write that follows it, is under way

    @property
    def count(self) -> int:
        """Messages that are staged, or still to be moved."""
        moving = sum(part.count for commit in self._row for part in commit.moving.values())
        return moving + sum(part.count for part in self.parts.values())

    def restore(self, parts: dict[bytes, bytes], commits: dict[bytes, bytes]) -> None:
        found = {identity: restored_part(identity, record) for identity, record in parts.items()}
        told = [restored_commit(query.decode(), record, found) for query, record in commits.items()]
        self.commits = {commit.query: commit for commit in sorted(told, key=lambda commit: commit.used_ms)}
        self._row.extend(commit for commit in self.commits.values() if commit.moving)
        self.parts = {part.identity: part for part in sorted(found.values(), key=lambda part: part.used_ms)}

    # -- staging -----------------------------------------------------------------------------------

    def refusal(self, producer: Producer, batch: Batch) -> tuple[str, str] | None:
        """Code and reason, if the batch cannot be staged."""
        name, identity = self._state.record.name, producer.identity
        if batch.columns & _STREAM:
            return "stage-refused", f"{name!r}: a message whose body is a stream cannot be staged"
        if any(identity in commit.moving for commit in self._row):
            return "stage-refused", f"{name!r}: the part is committed; stage more as another one"
        if name == DEAD_MESSAGE_QUEUE and (wrong := bad_rows.refusal(batch)):
            return "stage-refused", f"{name!r}: {wrong}"
        limit = self._state.settings.staged_parts_max
        if identity not in self.parts and len(self.parts) >= limit:
            reason = f"{name!r} has {limit:,} parts staged, as many as staged_parts_max allows"
            return "too-many-parts", f"{reason}; commit or abort some, or stage fewer at a time"
        return None

    def hold(self, producer: Producer, batch: Batch, pending: PendingWrite, *, now: float) -> list[Operation]:
        """Keep the messages until somebody commits them; `refusal` had nothing against it."""
        assert producer.stage is not None
        identity, destination = producer.identity, self._state.identity
        part = self.parts.pop(identity, None) or Part(identity, *producer.stage)
        self.parts[identity] = part
        part.count += batch.count
        part.last = batch.last_sequence
        part.used_ms = self._state.wall_ms(now)
        pending.follows = partial(self._held, part, batch.count)
        return [Put(Table.STAGED, staged_key(destination, identity, part.last), batch.data), part.put(destination)]

    def _held(self, part: Part, count: int, now: float) -> list[Command]:
        part.durable += count
        return []

    # -- the end of a stage ------------------------------------------------------------------------

    def commit(self, query: str, batch: int, named: NamedParts, answer: ToSession, *, now: float) -> list[Command]:
        """Raises `Rejected` if something is missing: nothing has changed then."""
        commit = self.commits.get(query) or Commit(query)
        is_new = batch > commit.batch
        parts = self._found(query, batch, named) if is_new else []
        done = max(batch, commit.batch)
        lost = [part for part in self.parts.values() if part.query == query and part.batch <= done]
        forgotten = self._forgotten() if query not in self.commits else []
        for part in (*lost, *parts):
            self.parts.pop(part.identity, None)
        operations = [operation for part in lost if part not in parts for operation in self._deletes(part)]
        operations += [other.delete(self._state.identity) for other in forgotten]
        self.commits.pop(query, None)
        self.commits[query] = commit
        if is_new:
            commit.batch, commit.count = batch, sum(part.count for part in parts)
            commit.moving |= {part.identity: part for part in parts}
            if commit.moving and commit not in self._row:
                self._row.append(commit)
        commit.used_ms = self._state.wall_ms(now)
        operations.append(commit.put(self._state.identity))
        pending = PendingWrite()
        if commit.moving:
            commit.waiting = [*commit.waiting[1 - ANSWERS_MAX :], answer]
        else:
            pending.answers.append(answer)
        return [self._state.write(operations, pending), *self.go_on()]

    def _found(self, query: str, batch: int, named: NamedParts) -> list[Part]:
        parts: dict[bytes, Part] = {}
        for identity, count in named:
            part = self.parts.get(identity)
            there = 0 if part is None or (part.query, part.batch) != (query, batch) else part.durable
            if part is None or there != count or identity in parts:
                reason = f"{self._state.record.name!r}, query {query!r}, batch {batch}: of part {identity.hex()} "
                reason += f"{count:,} messages are named and {there:,} are staged; stage the batch again"
                raise Rejected("stage-incomplete", reason)
            parts[identity] = part
        self._log.check_count(sum(part.count for part in parts.values()))
        return list(parts.values())

    def _forgotten(self) -> list[Commit]:
        """Queries that are forgotten for a new one."""
        surplus = len(self.commits) + 1 - self._state.settings.staged_queries_max
        found = [commit for commit in self.commits.values() if not commit.moving][: max(0, surplus)]
        for commit in found:
            del self.commits[commit.query]
        return found

    def abort(self, query: str, batch: int, named: Iterable[bytes], answer: ToSession) -> list[Command]:
        """Drop the parts named; those that are committed stay so."""
        found = [part for identity in named if (part := self.parts.get(identity)) is not None]
        dropped = [part for part in found if (part.query, part.batch) == (query, batch)]
        return self._drop(dropped, [answer]) if dropped else [answer]

    def _drop(self, parts: Iterable[Part], answers: list[ToSession]) -> list[Command]:
        operations: list[Operation] = []
        for part in parts:
            self.parts.pop(part.identity, None)
            operations += self._deletes(part)
        return [self._state.write(operations, PendingWrite(answers=answers))]

    def _deletes(self, part: Part) -> list[Operation]:
        return part.deletes(self._state.identity)

    # -- moving ------------------------------------------------------------------------------------

    def go_on(self) -> list[Command]:
        """Move more, if there is more and nothing is in the way."""
        if self._is_moving or not self._row or self._log.hindrance is not None:
            return []
        self._is_moving = True
        parts = list(self._row[0].moving)[:PARTS_READ_MAX]
        token = self._state.read_token(PendingDelayed(self._state.identity, parts))
        return [ReadDelayed(token, self._state.identity, READ_BYTES_MAX, parts)]

    def read(self, asked: PendingDelayed, event: DelayedRead, *, now: float) -> list[Command]:
        """Move what was read: all that is left of some parts, and perhaps the beginning of one more. In several writes,
        which the disk makes durable together: none of them may be long."""
        commit, destination = self._row[0], self._state.identity
        commands: list[Command] = []
        if damaged := sum(not data for _, data in event.items):
            text = f"{self._state.record.name!r}, query {commit.query!r}, batch {commit.batch}: {damaged} batches"
            commands.append(Report(Level.ERROR, "batch-damaged", f"{text} that were staged fail their checksum"))
        finished = self._finished(commit, asked.parts, event)
        portions = _portions(event.items)
        for number, items in enumerate(portions, 1):
            pending, operations = PendingWrite(), list[Operation]()
            for part, key in {key[8:_KEY_BYTES]: key for key, _ in items}.items():
                operations.append(delete_staged(destination, part, key))
            for _, data in items:
                operations += self._log.take(Batch.trusted(data), pending, now=now) if data else []
            if number == len(portions):
                operations += [commit.moving.pop(part).delete(destination) for part in finished]
                if not commit.moving:
                    self._row.popleft()
                    operations.append(commit.put(destination))  # without its parts: it is short from now on
                    pending.answers, commit.waiting = commit.waiting, []
                pending.follows = self._moved
            commands.append(self._state.write(operations, pending))
        return commands

    def _finished(self, commit: Commit, asked: Sequence[bytes], event: DelayedRead) -> list[bytes]:
        """The parts of which there is no more than was read: those before the one that was read last, and that one if
        its last key is there. If nothing was found, there was nothing in any of them."""
        if not event.items:
            return list(asked)
        last_key = event.items[-1][0]
        last = commit.moving[last_key[8:_KEY_BYTES]]
        at = asked.index(last.identity)
        is_whole = last_key == staged_key(self._state.identity, last.identity, last.last)
        return list(asked[: at + is_whole])

    def _moved(self, now: float) -> list[Command]:
        self._is_moving = False
        return self.go_on()

    # -- time --------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        oldest = next(iter(self.parts.values()), None)
        if oldest is None:
            return None
        return self._state.monotonic(oldest.used_ms) + self._state.settings.staged_keep_s

    def tick(self, now: float) -> list[Command]:
        """Drop what nobody has used for too long."""
        keep_s = self._state.settings.staged_keep_s
        stale: list[Part] = []
        for part in self.parts.values():
            if self._state.monotonic(part.used_ms) + keep_s > now:
                break
            stale.append(part)
        if not stale:
            return []
        count = sum(part.count for part in stale)
        self.dropped += count
        text = f"{self._state.record.name!r}: {count:,} messages in {len(stale)} parts were staged, and not committed"
        text += f" within staged_keep_s {keep_s:g}; the first is of query {stale[0].query!r}, batch {stale[0].batch}"
        return [Report(Level.WARNING, "stage-dropped", text), *self._drop(stale, [])]


def _portions(items: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """For one write each, by what is stored of them; at least one, which may be empty."""
    portions: list[list[tuple[bytes, bytes]]] = [[]]
    size_bytes = 0
    for item in items:
        counted = singles.counts_at_most(Batch.trusted(item[1])) if item[1] else 0
        if portions[-1] and size_bytes + counted > WRITE_BYTES_MAX:
            portions.append([])
            size_bytes = 0
        portions[-1].append(item)
        size_bytes += counted
    return portions
