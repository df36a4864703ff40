"""python -m angarium.sim: run many seeds and say what broke, or one seed and show what happened.

    python -m angarium.sim --world all --seeds 20000     run them; exit status 1 if a promise was broken
    python -m angarium.sim --world cluster --seed 17     run one and print its trace
"""
import argparse
import os
import sys

from angarium.sim.survey import Survey
from angarium.sim.world import Outcome
from angarium.sim.worlds import ALL, WORLDS, Task, world_of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m angarium.sim", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (1000)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them in (1; 0: one for each core)")
    parser.add_argument("--seed", type=int, help="run this one only, and print its trace")
    parser.add_argument("--last", type=int, default=0, help="of the trace, only so many last lines (0: all)")
    parser.add_argument("--world", choices=[*sorted(WORLDS), ALL], default="plain", help="what happens in it (plain)")
    options = parser.parse_args(arguments)

    def world(seed: int) -> str:
        return world_of(seed) if options.world == ALL else str(options.world)

    if options.seed is not None:
        return replay(Task(world(options.seed), options.seed), options.last)
    tasks = [Task(world(seed), seed) for seed in range(options.start, options.start + options.seeds)]
    return Survey(tasks, options.jobs or os.cpu_count() or 1).run()


def replay(task: Task, last: int) -> int:
    world = WORLDS[task.world](task.seed, is_traced=True)
    outcome: Outcome | None = None
    try:
        outcome = world.run()
    finally:
        for line in world.trace.lines[-last:]:
            print(line)
        if outcome is None:
            print(f"\n{task.world} seed {task.seed} fails at {world.clock.now:.6f} s:", file=sys.stderr)
    print(f"\n{task.world} seed {task.seed} keeps every promise: {outcome.confirmed} of {outcome.messages} messages "
          f"confirmed, {outcome.events} events in {outcome.virtual_s:g} virtual seconds, trace {outcome.digest}")
    print(f"trouble: {', '.join(outcome.faults) or 'none'}")
    print(f"seen: {', '.join(f'{count:,} {name}' for name, count in sorted(outcome.tally.items()))}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
