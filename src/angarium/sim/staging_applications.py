"""Applications that write exactly once, as Spark does: a query cuts its rows into batches, has tasks stage each one,
and commits what the tasks that succeeded have staged.

    Query ──task──> Worker ──attempt──> one producer for each destination ── rows ──> staged
      └── stage.commit, for each destination in turn, until each has answered; then the next batch

Attempts fail, are begun twice at once, are left behind or aborted; commits are sent again, late, or for what is done
long ago. A query that crashes begins again with the batch that its checkpoint names: the same rows, in other parts and
in another order. `calm_down` ends its moods: from then on it only finishes what it has begun.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from angarium.core.client import events
from angarium.sim.client import SimClient
from angarium.sim.messages import Violation
from angarium.sim.sessions import SimProducer
from angarium.sim.staging_audit import Attempt, Stage, StagingAudit

_ROWS_MAX = 30
_LOOK_EVERY_S = 0.02
_REFUSED = ("stage-incomplete", "destination-full")  # then the batch is staged again, or the commit is repeated


@dataclass(slots=True)
class Checkpoint:
    """What a query keeps on a disk of its own."""

    query: str
    batches: int
    destinations: Sequence[str]
    seed: str
    batch: int = 0  # to be committed next
    done: list[tuple[int, dict[str, list[Attempt]]]] = field(default_factory=list)  # what the last commits named

    def rows(self, batch: int) -> dict[int, str]:
        """Where each row of the batch belongs: the same whenever it is asked."""
        chance = Random(f"{self.seed} {self.query} {batch}")
        return {row: chance.choice(self.destinations) for row in range(chance.choice((1, 6, _ROWS_MAX)))}


@dataclass(frozen=True, slots=True)
class Moods:
    tasks_max: int
    pause_s_max: float  # between bursts of rows
    speculation_chance: float  # that a task is begun twice
    failure_chance: float  # that an attempt is given up
    abort_chance: float  # that what is given up is aborted, too
    late_chance: float  # that a commit comes when all is dropped
    again_chance: float  # that a commit is sent again though it was answered
    restage_chance: float  # that a batch is staged anew after its commit was lost, or though it was answered


def draw_moods(chance: Random) -> Moods:
    return Moods(
        tasks_max=chance.choice((1, 2, 4)),
        pause_s_max=chance.choice((0.01, 0.1, 0.4)),
        speculation_chance=chance.choice((0.0, 0.3, 0.8)),
        failure_chance=chance.choice((0.0, 0.1, 0.3)),
        abort_chance=chance.choice((0.0, 0.5, 1.0)),
        late_chance=chance.choice((0.0, 0.0, 0.1)),
        again_chance=chance.choice((0.0, 0.3)),
        restage_chance=chance.choice((0.0, 0.3, 0.8)),
    )


class Worker:
    """A process that runs attempts for any query."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.messages_left = 0
        self.is_done = True

    def calm_down(self) -> None: ...


class Running:
    """One attempt at a task, in a session of its own: it is over when all is confirmed, or it has failed."""

    def __init__(
        self, worker: Worker, chance: Random, audit: StagingAudit, stage: tuple[str, int], rows: dict[int, str],
        moods: Moods, told: Callable[["Running"], None],
    ) -> None:  # fmt: skip
        self._client = worker.client
        self._chance = chance
        self._moods = moods
        self._told = told
        self._audit = audit
        self._session = worker.client.open_session()
        order = list(rows)
        chance.shuffle(order)
        self.attempts: dict[str, Attempt] = {}
        self._producers: dict[str, SimProducer] = {}
        for name in dict.fromkeys(rows.values()):
            own = [row for row in order if rows[row] == name]
            self.attempts[name] = audit.begin(Stage(*stage, name), own)
            self._producers[name] = self._session.produce(name, stage=stage)
        self._fails_at = chance.random() if chance.random() < moods.failure_chance else 2.0
        self.is_over = False
        self.has_failed = False
        self._look()

    def _look(self) -> None:
        if self.is_over:
            return
        if self._session.is_ended:
            self._end(failed=True)
            return
        left = [name for name, attempt in self.attempts.items() if attempt.sent < len(attempt.rows)]
        rows = sum(len(attempt.rows) for attempt in self.attempts.values())
        if sum(attempt.sent for attempt in self.attempts.values()) >= self._fails_at * rows:
            self.give_up()
            return
        if left:
            self._send(self._chance.choice(left))
        elif all(producer.unconfirmed == 0 for producer in self._producers.values()):
            for name, producer in self._producers.items():
                self._audit.identified(self.attempts[name], producer.facts.identity)
            self._session.close()
            self._end(failed=False)
            return
        self._client.clock.after(_LOOK_EVERY_S + self._chance.random() * self._moods.pause_s_max, self._look)

    def _send(self, name: str) -> None:
        attempt, producer = self.attempts[name], self._producers[name]
        low = attempt.sent
        high = min(len(attempt.rows), low + self._chance.randint(1, 10))
        attempt.sent = high
        producer.publish([attempt.body(index) for index in range(low, high)])

    def give_up(self) -> None:
        """Some of it may be staged, and more be on its way."""
        self._client.ledger.tally["attempts given up"] += 1
        if self._client.is_alive and self._chance.random() < self._moods.abort_chance:
            for name, producer in self._producers.items():
                if producer.facts.identity:
                    self._audit.identified(self.attempts[name], producer.facts.identity)
                    abort(self._client, self.attempts[name])
        self._session.close(timeout_s=self._chance.choice((0.01, 1.0)))
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        self.is_over, self.has_failed = True, failed
        self._told(self)


def abort(client: SimClient, attempt: Attempt) -> None:
    query, batch, name = attempt.stage
    parts = [(attempt.identity, max(1, attempt.sent))]
    client.request("stage.abort", name=name, query=query, batch=batch, parts=parts)


class Query:
    def __init__(
        self, client: SimClient, chance: Random, audit: StagingAudit, checkpoint: Checkpoint,
        worker: Callable[[], Worker | None], *, keep_s: float,
    ) -> None:  # fmt: skip
        self.client = client
        self.checkpoint = checkpoint
        self._chance = chance
        self._audit = audit
        self._worker = worker  # one that is alive
        self._keep_s = keep_s
        self._moods = draw_moods(chance)
        self._is_calm = False
        self._tasks: list[dict[int, str]] = []  # rows of each
        self._running: dict[int, list[Running]] = {}
        self._staged: dict[int, Running] = {}  # the attempt that won, of each task
        self._number = 0  # of the batch that is being staged, which may be an old one
        self._named: dict[str, list[Attempt]] = {}
        self._uncommitted: list[str] = []
        self._waits_for = 0  # request
        client.on_answer = self._answered
        client.on_loss = lambda loss: self._lost() if loss.number == self._waits_for else None
        client.clock.after(chance.random(), self._begin_batch)

    @property
    def messages_left(self) -> int:
        """Batches."""
        return self.checkpoint.batches - self.checkpoint.batch

    @messages_left.setter
    def messages_left(self, left: int) -> None:
        raise AssertionError("what is left is in the checkpoint")

    @property
    def is_done(self) -> bool:
        return not self.client.is_alive or (self.messages_left == 0 and not self._waits_for and not self._tasks)

    def calm_down(self) -> None:
        self._is_calm = True

    def _draw(self, chance: float) -> bool:
        return not self._is_calm and self._chance.random() < chance

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.client.clock.after(0.0 if self._is_calm else delay_s, lambda: action() if self.client.is_alive else None)

    # -- tasks ---------------------------------------------------------------------------------------

    def _begin_batch(self) -> None:
        if not self.client.is_alive or not self.messages_left:
            return
        self._stage(self.checkpoint.batch)

    def _stage(self, batch: int) -> None:
        """Stage all of the batch, whatever was done of it before."""
        self._number = batch
        rows = self.checkpoint.rows(batch)
        tasks: list[dict[int, str]] = [{} for _ in range(self._chance.randint(1, self._moods.tasks_max))]
        for row, name in rows.items():
            self._chance.choice(tasks)[row] = name
        self._tasks = [task for task in tasks if task]
        self._running, self._staged = {}, {}
        self.client.say(f"stages batch {batch} of {self.checkpoint.query} in {len(self._tasks)} tasks")
        for task in range(len(self._tasks)):
            self._begin_attempt(task)
            if self._draw(self._moods.speculation_chance):
                self._begin_attempt(task)

    def _begin_attempt(self, task: int) -> None:
        worker = self._worker()
        if worker is None:
            self._later(0.1, lambda: self._begin_attempt(task))
            return
        tasks, moods = self._tasks, self._moods
        stage = (self.checkpoint.query, self._number)

        def told(attempt: Running) -> None:
            # The word takes its time; a query that is at something else by then does not listen.
            self._later(self._chance.random() * 0.05, lambda: self._finished(tasks, task, attempt))

        chance = Random(self._chance.random())
        attempt = Running(worker, chance, self._audit, stage, tasks[task], moods, told)
        self._running.setdefault(task, []).append(attempt)

    def _finished(self, tasks: list[dict[int, str]], task: int, attempt: Running) -> None:
        if tasks is not self._tasks or task in self._staged:
            if not attempt.has_failed and self._draw(self._moods.abort_chance):
                self._abort(attempt)
            return
        if attempt.has_failed:
            if all(other.is_over for other in self._running[task]):
                self._later(self._chance.random() * 0.2, lambda: self._retry(tasks, task))
            return
        self._staged[task] = attempt
        for other in self._running[task]:
            if not other.is_over and self._draw(0.5):  # else it goes on, and comes too late
                other.give_up()
        if len(self._staged) == len(self._tasks):
            late_s = self._keep_s + 1.0 if self._draw(self._moods.late_chance) else self._chance.random() * 0.1
            self._later(late_s, lambda: self._commit(tasks))

    def _retry(self, tasks: list[dict[int, str]], task: int) -> None:
        if tasks is self._tasks and task not in self._staged:
            self._begin_attempt(task)

    def _abort(self, running: Running) -> None:
        for attempt in running.attempts.values():
            abort(self.client, attempt)

    # -- commits -------------------------------------------------------------------------------------

    def _commit(self, tasks: list[dict[int, str]]) -> None:
        if tasks is not self._tasks:
            return
        self._named = {}
        for running in self._staged.values():
            for name, attempt in running.attempts.items():
                self._named.setdefault(name, []).append(attempt)
        self._ask_all()

    def _ask_all(self) -> None:
        """Of each destination, whether it has answered before or not."""
        self._uncommitted = list(self._named)
        self._chance.shuffle(self._uncommitted)
        self._ask()

    def _ask(self) -> None:
        name = self._uncommitted[0]
        attempts = self._named[name]
        query, batch = self.checkpoint.query, self._number
        self._audit.asks(Stage(query, batch, name), attempts)
        parts = [(attempt.identity, len(attempt.rows)) for attempt in attempts]
        self._waits_for = self.client.request("stage.commit", name=name, query=query, batch=batch, parts=parts)

    def _answered(self, answer: events.RequestAnswered) -> None:
        if answer.number != self._waits_for:
            return  # to an abort
        self._waits_for = 0
        if answer.code in _REFUSED:
            self._later(0.05 + self._chance.random() * 0.3, self._refused)
            return
        if answer.code:
            raise Violation("what is staged can be committed", f"{answer.code}: {answer.reason}")
        name = self._uncommitted.pop(0)
        rows = {row for row, at in self.checkpoint.rows(self._number).items() if at == name}
        self._audit.committed(Stage(self.checkpoint.query, self._number, name), rows)
        if self._uncommitted:
            self._ask()
        else:
            self._batch_done()

    def _refused(self) -> None:
        self.client.ledger.tally["commits refused"] += 1
        self._stage(self._number)

    def _lost(self) -> None:
        """It may have been done or not."""
        self._waits_for = 0
        self.client.ledger.tally["commits lost"] += 1
        if not self._draw(self._moods.restage_chance):
            self._later(self._chance.random() * 0.5, self._ask_all)
            return
        if self._draw(self._moods.abort_chance):
            for running in self._staged.values():
                self._abort(running)
        self._stage(self._number)

    def _batch_done(self) -> None:
        checkpoint = self.checkpoint
        if self._number == checkpoint.batch:
            checkpoint.done = [*checkpoint.done[-1:], (checkpoint.batch, self._named)]
            checkpoint.batch += 1
        self._tasks = []
        number, named = self._chance.choice(checkpoint.done)
        if self._draw(self._moods.again_chance):  # somebody asks once more, who has not heard
            self._number, self._named = number, named
            self._later(self._chance.random() * 0.3, self._ask_all)
        elif self._draw(self._moods.restage_chance * 0.3):
            self._stage(number)
        else:
            self._later(self._chance.random() * 0.3, self._begin_batch)
