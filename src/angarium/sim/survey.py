"""Many seeds of some worlds, in several processes: what ran, what was seen, what broke, and how to see it again.

It says how far it is every few seconds. When it is interrupted (Ctrl-C) it ends at once, and sums up what it has.
"""
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing import Pool

from angarium.sim.world import Failure, Outcome
from angarium.sim.worlds import Task, run_task

_PROGRESS_S = 5.0
_LISTED_MAX = 50
_WHAT_MAX = 300
INTERRUPTED = 130


@dataclass(slots=True)
class _Seen:
    """Of one world."""

    seeds: int = 0
    messages: int = 0
    confirmed: int = 0
    events: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)  # kinds of trouble that came together
    tally: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.messages += outcome.messages
        self.confirmed += outcome.confirmed
        self.events += outcome.events
        self.virtual_s += outcome.virtual_s
        self.faults.update(outcome.faults)
        self.pairs.update(combinations(sorted(set(outcome.faults)), 2))
        self.tally.update(outcome.tally)


class Survey:
    def __init__(self, tasks: Sequence[Task], jobs: int) -> None:
        self._tasks = tasks
        self._jobs = jobs
        self._worlds: dict[str, _Seen] = {}
        self._failures: list[tuple[Task, Failure]] = []
        self._done = 0
        self._started_at = self._shown_at = 0.0

    def run(self) -> int:
        """The exit status."""
        self._started_at = self._shown_at = time.monotonic()
        is_interrupted = False
        try:
            for task, result in _results(self._tasks, self._jobs):
                self._add(task, result)
        except KeyboardInterrupt:
            is_interrupted = True
        self._sum_up(is_interrupted)
        return 1 if self._failures else INTERRUPTED if is_interrupted else 0

    def _add(self, task: Task, result: Outcome | Failure) -> None:
        self._done += 1
        seen = self._worlds.setdefault(task.world, _Seen())
        seen.seeds += 1
        if isinstance(result, Failure):
            self._failures.append((task, result))
            self._clear()
            print(f"{task.world} seed {task.seed} at {result.virtual_s:.3f} s: {result.promise}: "
                  f"{result.what[:_WHAT_MAX]}\n    {task.command}", flush=True)  # fmt: skip
        else:
            seen.add(result)
        now = time.monotonic()
        if now - self._shown_at > _PROGRESS_S:
            self._shown_at = now
            self._say(now - self._started_at)

    # -- for people ------------------------------------------------------------------------------------

    def _say(self, seconds: float) -> None:
        left_s = seconds / self._done * (len(self._tasks) - self._done)
        text = (f"{self._done:,} of {len(self._tasks):,} seeds, {self._done / seconds:.1f} a second, "
                f"{len(self._failures)} failed, about {_span(left_s)} left")  # fmt: skip
        print(f"\r\033[K{text}" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True)

    @staticmethod
    def _clear() -> None:
        if sys.stdout.isatty():
            print("\r\033[K", end="")

    def _sum_up(self, is_interrupted: bool) -> None:
        self._clear()
        seconds = time.monotonic() - self._started_at
        print(f"\n{'interrupted: ' if is_interrupted else ''}{self._done:,} of {len(self._tasks):,} seeds ran in "
              f"{_span(seconds)}, {self._jobs} at a time; {len(self._failures)} failed")  # fmt: skip
        for world, seen in sorted(self._worlds.items()):
            failed = sum(task.world == world for task, _ in self._failures)
            kinds = len(seen.faults)
            print(f"\n{world}: {seen.seeds:,} seeds, {failed} failed; {seen.confirmed:,} of {seen.messages:,} messages "
                  f"confirmed, {seen.events:,} events in {seen.virtual_s:,.0f} virtual seconds")  # fmt: skip
            print(f"  trouble: {_tally(seen.faults)}; {len(seen.pairs)} of {kinds * (kinds - 1) // 2} pairs together")
            print(f"  seen: {_tally(seen.tally)}")
        if not self._failures:
            print("\nevery promise was kept" + (", as far as it went" if is_interrupted else ""))
            return
        print(f"\n{len(self._failures)} failed; to see one again:")
        for (task, failure) in self._failures[:_LISTED_MAX]:
            print(f"  {task.command}    # {failure.promise}")
        if len(self._failures) > _LISTED_MAX:
            print(f"  and {len(self._failures) - _LISTED_MAX} more, shown above as they came")


def _results(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Outcome | Failure]]:
    gc.freeze()
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    with Pool(jobs, _leave_interrupts_to_the_parent) as pool:  # whose end ends the processes
        yield from pool.imap_unordered(run_task, tasks)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _tally(tally: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(tally.items())) or "none"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"
