"""Goal: a million random pairs of a selector and a message, and three evaluators that agree on every one.
Method: seeded chunks, 600,000 pairs every time and the rest where there are minutes; within one, selectors in groups of
50, each group as an index, on 200 messages. Others than these: python -m benchmarks.selectors --agree 1000000 --seed N.
"""
import pytest

from benchmarks.selectors import agree

CHUNKS, CHUNKS_MORE = 12, 8
PAIRS = 50_000  # about three seconds


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_all_evaluators_agree(seed: int) -> None:
    agree(PAIRS, seed, messages_each=200)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(CHUNKS, CHUNKS + CHUNKS_MORE))
def test_all_evaluators_agree_on_a_million_pairs_in_all(seed: int) -> None:
    agree(PAIRS, seed, messages_each=200)
