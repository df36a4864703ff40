"""Goal: a million random pairs of a selector and a message, and three evaluators that agree on every one.
Method: seeded chunks; within one, selectors in groups of 50, each group as an index, on 200 messages. Others than
these: python -m benchmarks.selectors --agree 1000000 --seed N.
"""
import pytest

from benchmarks.selectors import agree

CHUNKS = 20
PAIRS = 50_000  # about three seconds


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_all_evaluators_agree(seed: int) -> None:
    agree(PAIRS, seed, messages_each=200)
