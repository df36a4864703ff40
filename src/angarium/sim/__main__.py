"""python -m angarium.sim: run many seeds and say what broke, or one seed and show what happened.

    python -m angarium.sim --seeds 1000 --start 0        run them; exit status 1 if a promise was broken
    python -m angarium.sim --seed 17                     run one and print its trace
"""
import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from angarium.sim.clusters.trade import ClusterTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.post import PostWorld
from angarium.sim.replicas.world import ReplicaWorld
from angarium.sim.spanning import SpanningWorld
from angarium.sim.trade import TradeWorld
from angarium.sim.world import Failure, Outcome, World, run_seed

_PROGRESS_S = 5.0
Kind = type[World] | type[ReplicaWorld]
WORLDS: dict[str, Kind] = {
    "cluster": ClusterWorld, "cluster-trade": ClusterTradeWorld, "plain": World, "trade": TradeWorld,
    "post": PostWorld, "replicas": ReplicaWorld, "spanning": SpanningWorld,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m angarium.sim", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (1000)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them in (1)")
    parser.add_argument("--seed", type=int, help="run this one only, and print its trace")
    parser.add_argument("--last", type=int, default=0, help="of the trace, only so many last lines (0: all)")
    parser.add_argument("--world", choices=sorted(WORLDS), default="plain", help="what happens in it (plain)")
    options = parser.parse_args(arguments)
    kind = WORLDS[options.world]
    if options.seed is not None:
        return replay(kind, options.seed, options.last)
    return survey(kind, range(options.start, options.start + options.seeds), options.jobs)


def replay(kind: Kind, seed: int, last: int) -> int:
    world = kind(seed, is_traced=True)
    outcome: Outcome | None = None
    try:
        outcome = world.run()
    finally:
        for line in world.trace.lines[-last:]:
            print(line)
        if outcome is None:
            print(f"\nseed {seed} fails at {world.clock.now:.6f} s:", file=sys.stderr)
    print(f"\nseed {seed} keeps every promise: {outcome.confirmed} of {outcome.messages} messages confirmed, "
          f"{outcome.events} events in {outcome.virtual_s:g} virtual seconds, trace {outcome.digest}")  # fmt: skip
    print(f"trouble: {', '.join(outcome.faults) or 'none'}; {_tally(outcome.tally)}")
    return 0


def survey(kind: Kind, seeds: range, jobs: int) -> int:
    started = shown = time.monotonic()
    failures: list[Failure] = []
    outcomes: list[Outcome] = []
    for result in _results(kind, seeds, jobs):
        if isinstance(result, Failure):
            failures.append(result)
            print(f"seed {result.seed} at {result.virtual_s:.3f} s: {result.promise}: {result.what[:300]}", flush=True)
        else:
            outcomes.append(result)
        if time.monotonic() - shown > _PROGRESS_S:
            shown = time.monotonic()
            done = len(failures) + len(outcomes)
            print(f"{done} of {len(seeds)} seeds, {done / (shown - started):.1f} a second, "
                  f"{len(failures)} failed", flush=True)  # fmt: skip
    _summarise(seeds, outcomes, failures, time.monotonic() - started)
    return 1 if failures else 0


def _results(kind: Kind, seeds: range, jobs: int) -> Iterator[Outcome | Failure]:
    gc.freeze()
    if jobs == 1:
        yield from map(partial(run_seed, kind=kind), seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(run_seed, kind=kind), seeds, chunksize=8)


def _summarise(seeds: range, outcomes: list[Outcome], failures: list[Failure], seconds: float) -> None:
    print(f"\nran seeds {seeds.start} to {seeds.stop - 1} in {seconds:.1f} s: "
          f"{sum(o.messages for o in outcomes):,} messages, {sum(o.confirmed for o in outcomes):,} of them confirmed, "
          f"{sum(o.events for o in outcomes):,} events in {sum(o.virtual_s for o in outcomes):,.0f} virtual seconds")
    print(f"trouble: {_tally(_count(fault for outcome in outcomes for fault in outcome.faults))}")
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.tally)
    print(f"seen: {_tally(total)}")
    if not failures:
        print("every promise was kept")
        return
    print(f"\n{len(failures)} of {len(seeds)} seeds failed:")
    for promise, found in sorted(_group(failures).items(), key=lambda item: -len(item[1])):
        print(f"  {len(found):4}  {promise}: seeds {', '.join(str(failure.seed) for failure in found[:10])}")
    print(f"replay one: python -m angarium.sim --seed {failures[0].seed} --last 100")


def _group(failures: list[Failure]) -> dict[str, list[Failure]]:
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(failure.promise, []).append(failure)
    return groups


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names))


def _tally(tally: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(tally.items()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
