"""Whether the simulator notices a bug that was planted."""
from collections.abc import Callable, Iterable
from typing import Protocol

import pytest

from angarium.sim.messages import Violation


class Runs(Protocol):
    def run(self) -> object: ...


def assert_noticed(bug: str, seeds: Iterable[int], world: Callable[[int], Runs]) -> None:
    """In some world of these seeds a promise is seen to be broken."""
    tried = 0
    for seed in seeds:
        tried += 1
        try:
            world(seed).run()
        except Violation as caught:  # anything else is a plant that no longer fits the code
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {bug} in {tried} seeds")
