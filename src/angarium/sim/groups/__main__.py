"""python -m angarium.sim.groups: run many seeds of group services and say what broke, or one and show what happened."""
import argparse
import sys
from collections import Counter

from angarium.sim.groups.world import GroupsWorld
from angarium.sim.messages import Violation


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m angarium.sim.groups", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (1000)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="run this one only, and print its trace")
    parser.add_argument("--last", type=int, default=0, help="of the trace, only so many last lines (0: all)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return replay(options.seed, options.last)
    return survey(range(options.start, options.start + options.seeds))


def replay(seed: int, last: int) -> int:
    world = GroupsWorld(seed, is_traced=True)
    try:
        print_after = str(world.run())
    except Violation as broken:
        print_after = f"seed {seed} at {world.clock.now:.3f} s: {broken}"
    for line in world.trace.lines[-last:]:
        print(line)
    print(f"\n{print_after}")
    return 0


def survey(seeds: range) -> int:
    seen: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        world = GroupsWorld(seed)
        try:
            seen.update(world.run().tally)
        except Violation as broken:
            failed += 1
            print(f"seed {seed} at {world.clock.now:.3f} s: {str(broken)[:300]}", flush=True)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {failed} failed; {dict(sorted(seen.items()))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
