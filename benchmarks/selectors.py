"""What selectors cost, and whether all evaluators agree.

    python -m benchmarks.selectors [--subscriptions 10000] [--messages 2048] [--batch 64]
    python -m benchmarks.selectors --agree 1000000

The first asks one selector about many messages, and an index of many selectors about each message, beside evaluating
each of them. Every selector has five predicates over five of twenty properties; a message has all twenty. The loads
differ in how much they select: equality and prefixes as people write them, ranges that overlap, ranges so wide that
hundreds of subscriptions get each message. Figures are processor time, the least of several rounds: a busy machine
shows less.
The second draws random selectors and messages from tests/unit/selector/selector_random.py and compares the compiled
form and the index with the oracle. ADR 7 cites the tables that this prints.
"""
import argparse
import gc
import os
import platform
import time
from collections.abc import Callable
from random import Random

import msgspec

from angarium.core.destination.fields import BatchFields
from angarium.core.destination.selecting import Keep, kept
from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.fields import Fields
from angarium.core.selector.index import SelectorIndex
from angarium.core.selector.naive import matches
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import Selector
from angarium.core.wire.batch import Batch
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.selector.selector_random import random_message, random_selector

PROPERTIES = 20
PREDICATES = 5
ROUNDS = 5
COLORS = [f"color-{number}" for number in range(20)]
ONE_SELECTOR = (
    "JMSType = 'car' AND color = 'blue' AND weight > 2500",
    "weight BETWEEN 1000 AND 3000 AND color IN ('blue', 'red') AND owner IS NOT NULL",
    "color LIKE 'bl%' AND (weight < 100 OR weight * 2 > 5000) AND NOT sold",
)
Load = Callable[[Random, int], str]  # one predicate on a property


def mixed(random: Random, number: int) -> str:
    """Properties 0 to 9 are numbers, the others strings."""
    if number < 10:
        low = random.randrange(900)
        return f"p{number} " + random.choice((f">= {low}", f"< {low}", f"= {low}", f"BETWEEN {low} AND {low + 100}"))
    color = random.choice(COLORS)
    return random.choice(
        (f"p{number} = '{color}'", f"p{number} IN ('{color}', 'x')", f"p{number} LIKE '{color[:7]}%'",
         f"p{number} <> '{color}'", f"p{number} IS NOT NULL")
    )  # fmt: skip


def ranges(width: int) -> Load:
    def load(random: Random, number: int) -> str:
        low = random.random() * (1_000 - width)
        return f"p{number} BETWEEN {low:.3f} AND {low + width:.3f}"

    return load


LOADS: dict[str, tuple[Load, bool]] = {  # and whether half of the properties are strings
    "mixed": (mixed, True),
    "ranges of 20 %": (ranges(200), False),
    "ranges of 50 %": (ranges(500), False),
}


def least(work: Callable[[], object]) -> float:
    """Seconds of the fastest round."""
    times: list[float] = []
    gc.disable()
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    gc.enable()
    return min(times)


def parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


def one_selector(count: int, batch: int) -> None:
    random = Random(1)
    rows: list[dict[str, object]] = [
        {"JMSType": random.choice(("car", "bike")), "color": random.choice(("blue", "red", "green")), "owner": "x",
         "weight": random.randrange(5_000), "sold": random.random() < 0.5, **{f"p{i}": i for i in range(PROPERTIES)}}
        for _ in range(count)
    ]  # fmt: skip
    print(
        f"| one selector, {count:,} messages of {len(rows[0])} properties in batches of {batch} | asking alone, µs a "
        "message | decoding and asking, a batch at a time | message by message | matched |\n|---|---|---|---|---|"
    )
    batches = [rows[at : at + batch] for at in range(0, count, batch)]
    sent = [published(part) for part in batches]
    for text in ONE_SELECTOR:
        selector = parsed(text)
        compiled, names = compile_selector(selector), selector.names
        ask, match = compiled.match_batch, compiled.match
        alone = least(lambda ask=ask: [ask(part) for part in batches])  # type: ignore[misc]
        each = least(lambda match=match, names=names: [looked(part, match, names) for part in sent])  # type: ignore[misc]
        keep = Keep(lambda fields, index, match=match: match(fields[index]), names, ask)  # type: ignore[misc]
        whole = least(lambda keep=keep: [kept(part, 0, [(0, part.count)], keep) for part in sent])  # type: ignore[misc]
        found = sum(high - low for part in sent for low, high in kept(part, 0, [(0, part.count)], keep))
        assert found == sum(ask(rows))
        times = " | ".join(f"{seconds / count * 1e6:.2f}" for seconds in (alone, whole, each))
        print(f"| `{text}` | {times} | {found / count:.0%} |")


def published(rows: list[dict[str, object]]) -> Batch:
    """The messages as they lie in a log; what is a header field there is one."""
    encode = msgspec.msgpack.encode
    headers = [encode({"type": row["JMSType"]}) for row in rows]
    properties = [encode({name: value for name, value in row.items() if name != "JMSType"}) for row in rows]
    columns = MessageColumns(headers=headers, properties=properties)
    return Batch.trusted(pack(bytes(16), 1, 0, [b""] * len(rows), columns))


def looked(batch: Batch, match: Callable[[Fields], bool], names: frozenset[str]) -> list[bool]:
    fields = BatchFields(batch, names=names)
    return [match(fields[index]) for index in range(batch.count)]


def many_selectors(name: str, subscriptions: int, count: int, batch: int) -> None:
    load, with_texts = LOADS[name]
    random = Random(2)
    selectors = [
        parsed(" AND ".join(load(random, number) for number in random.sample(range(PROPERTIES), PREDICATES)))
        for _ in range(subscriptions)
    ]
    messages: list[dict[str, object]] = [
        {
            f"p{number}": random.choice(COLORS) if with_texts and number >= 10 else random.randrange(1_000)
            for number in range(PROPERTIES)
        }
        for _ in range(count)
    ]
    index = SelectorIndex[int]()
    began = time.process_time()
    for key, selector in enumerate(selectors):
        index.add(key, selector)
    adding = (time.process_time() - began) / subscriptions
    batches = [messages[at : at + batch] for at in range(0, count, batch)]
    batched = least(lambda: [index.match_batch(part) for part in batches]) / count
    single = least(lambda: [index.match(message) for message in messages]) / count
    asks = [compile_selector(selector).match for selector in selectors]
    few = messages[:10]
    each = least(lambda: [[key for key, ask in enumerate(asks) if ask(message)] for message in few]) / len(few)
    found = [index.match(message) for message in messages]
    for message, keys in zip(few, found, strict=False):
        assert sorted(keys) == [key for key, ask in enumerate(asks) if ask(message)], "the index is wrong"
    began = time.process_time()
    changed = range(0, subscriptions, 10)
    for key in changed:
        index.remove(key)
    removing = (time.process_time() - began) / len(changed)
    matched = sum(map(len, found)) / count
    print(
        f"| {name} | {matched:.0f} | {batched * 1e6:.0f} | {single * 1e6:.0f} | {each * 1e6:,.0f} | "
        f"{each / batched:.0f} | {adding * 1e3:.2f} | {removing * 1e3:.2f} |"
    )


def agree(pairs: int, seed: int, *, messages_each: int = 40) -> None:
    """Selectors in groups of 50, each group as an index, each on so many messages."""
    random = Random(seed)
    done = matched = 0
    began = time.process_time()
    while done < pairs:
        selectors = [parsed(random_selector(random)) for _ in range(50)]
        messages = [random_message(random) for _ in range(messages_each)]
        index = SelectorIndex[int]()
        wanted: list[list[int]] = [[] for _ in messages]
        for key, selector in enumerate(selectors):
            index.add(key, selector)
            answers = [matches(selector, message) for message in messages]
            if compile_selector(selector).match_batch(messages) != answers:
                raise SystemExit(f"the compiled form is wrong: seed {seed}, {selector.text!r}, {messages!r}")
            for keys, answer in zip(wanted, answers, strict=True):
                keys += [key] * answer
        for message, found, keys in zip(messages, index.match_batch(messages), wanted, strict=True):
            if sorted(found) != keys:
                texts = [selectors[key].text for key in {*found} ^ {*keys}]
                raise SystemExit(f"the index is wrong: seed {seed}, {texts!r}, {message!r}")
            matched += len(keys)
        done += len(selectors) * len(messages)
    seconds = time.process_time() - began
    print(f"{done:,} pairs, {matched / done:.0%} matched: all three evaluators agree. {seconds:.0f} s, seed {seed}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--subscriptions", type=int, default=10_000)
    arguments.add_argument("--messages", type=int, default=2_048)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--agree", type=int, metavar="PAIRS", help="compare the evaluators instead")
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    if given.agree:
        agree(given.agree, given.seed)
        return
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}\n")
    one_selector(given.messages, given.batch)
    print(
        f"\n| {given.subscriptions:,} selectors, {PREDICATES} predicates over {PROPERTIES} properties | receivers | "
        f"index, µs a message in batches of {given.batch} | one by one | evaluating each, µs | each : index | "
        "add, ms | remove, ms |\n|---|---|---|---|---|---|---|---|"
    )
    for name in LOADS:
        many_selectors(name, given.subscriptions, given.messages, given.batch)


if __name__ == "__main__":
    main()
