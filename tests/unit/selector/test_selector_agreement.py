"""Goal: three evaluators, one meaning. Whatever the selector and the message, the compiled form and the index answer
as the oracle does, and an index answers for its present selectors whatever its past.
Method: random selectors over few names and values, those at the edges of every rule among them (selector_random).
The same for millions of pairs: python -m benchmarks.selectors --agree 1000000."""
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.index import SelectorIndex
from angarium.core.selector.naive import matches
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import Selector
from tests.unit.core.core_settings import QUICK, THOROUGH
from tests.unit.selector.selector_random import random_message, random_selector


def parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


@THOROUGH
@given(st.integers(0, 2**32))
def test_compiled_form_and_oracle_agree(seed: int) -> None:
    random = Random(seed)
    text = random_selector(random)
    selector = parsed(text)
    compiled = compile_selector(selector)
    messages = [random_message(random) for _ in range(20)]
    wanted = [matches(selector, message) for message in messages]
    assert compiled.match_batch(messages) == wanted, text
    assert [compiled.match(message) for message in messages] == wanted, text


@QUICK
@given(st.integers(0, 2**32))
def test_index_and_oracle_agree_while_selectors_come_and_go(seed: int) -> None:
    random = Random(seed)
    index, selectors = SelectorIndex[int](), dict[int, Selector | None]()
    for step in range(30):
        if selectors and random.random() < 0.35:
            key = random.choice(list(selectors))
            del selectors[key]
            index.remove(key)
        else:
            shared = random.choice(list(selectors.values())) if selectors and random.random() < 0.2 else None
            selectors[step] = shared or (parse(random_selector(random, 2)) if random.random() < 0.95 else None)
            index.add(step, selectors[step])
        messages = [random_message(random), random_message(random)]
        for message, found in zip(messages, index.match_batch(messages), strict=True):
            wanted = [key for key, selector in selectors.items() if selector is None or matches(selector, message)]
            assert sorted(found) == sorted(wanted), (message, {key: s and s.text for key, s in selectors.items()})
    assert len(index) == len(selectors)
    assert index.names == {name for selector in selectors.values() if selector for name in selector.names}


@QUICK
@given(st.integers(0, 2**32))
def test_a_long_history_leaves_no_trace(seed: int) -> None:
    """Many ranges on one property, so that blocks of the line split, empty and vanish."""
    random = Random(seed)
    index, ranges = SelectorIndex[int](), dict[int, tuple[int, int]]()
    for step in range(120):
        if len(ranges) > 40 or (ranges and random.random() < 0.3):
            index.remove(gone := random.choice(list(ranges)))
            del ranges[gone]
        else:
            low = random.randrange(60)
            ranges[step] = (low, low + random.randrange(20))
            index.add(step, parse(f"x BETWEEN {ranges[step][0]} AND {ranges[step][1]}"))
    for x in range(-1, 82):
        wanted = [key for key, (low, high) in ranges.items() if low <= x <= high]
        assert sorted(index.match({"x": x})) == sorted(wanted)
    for key in ranges:
        index.remove(key)
    assert index.match({"x": 1}) == [] and not index.names and len(index) == 0
