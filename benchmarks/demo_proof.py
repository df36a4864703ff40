"""The proof at the end of the demonstration: what was confirmed is what was received.

Producers write down what the broker confirmed, consumers what they received and settled; the two never talk to each
other. The proof compares the books:

    nothing lost         every confirmed message was received
    nothing invented     every received message was confirmed
    nothing changed      one hash over (producer, sequence, digest of the body), sorted, is the same on both sides
    nothing twice        no session received a message that it had settled
    in order             each session received each producer's messages in the order of their sending; of those who
                         share a queue, one may get late what was on its way to another when something was killed
"""
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class Entry(NamedTuple):
    producer: str
    sequence: int
    digest: bytes


class Receipt(NamedTuple):
    entry: Entry
    redelivered: bool  # the broker said that it may have been delivered before: exempt from order


@dataclass(frozen=True, slots=True)
class Verdict:
    title: str
    confirmed_count: int
    received_count: int
    confirmed_hash: str
    received_hash: str
    redelivered_count: int
    problems: list[str]

    @property
    def holds(self) -> bool:
        return not self.problems


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def prove(
    title: str, confirmed: Sequence[Entry], sessions: Mapping[str, Sequence[Receipt]],
    sent_before_kill: Mapping[str, int] = MappingProxyType({}),
) -> Verdict:  # fmt: skip
    """`sessions` are those that shared the messages: all consumers of a queue, or one subscriber of a topic.
    `sent_before_kill`: of each producer, the last that can have been on its way when something was killed."""
    may_be_late = sent_before_kill if len(sessions) > 1 else {}
    received = [receipt.entry for receipts in sessions.values() for receipt in receipts]
    problems = [
        *_compared(confirmed, received),
        *(problem for name, receipts in sessions.items() for problem in _within_session(name, receipts, may_be_late)),
    ]
    confirmed_hash, received_hash = book_hash(confirmed), book_hash(received)
    if confirmed_hash != received_hash and not problems:
        problems.append("the hashes differ although every message is there")
    redelivered = sum(receipt.redelivered for receipts in sessions.values() for receipt in receipts)
    return Verdict(title, len(confirmed), len(received), confirmed_hash, received_hash, redelivered, problems)


def book_hash(entries: Iterable[Entry]) -> str:
    """Of the set of entries: two sessions may share a message that moved from one to the other."""
    total = hashlib.sha256()
    for producer, sequence, body_digest in sorted(set(entries)):
        total.update(f"{producer} {sequence} ".encode() + body_digest + b"\n")
    return total.hexdigest()


def _compared(confirmed: Sequence[Entry], received: Sequence[Entry]) -> list[str]:
    problems = []
    sent = {(entry.producer, entry.sequence): entry.digest for entry in confirmed}
    came = {(entry.producer, entry.sequence): entry.digest for entry in received}
    if len(sent) != len(confirmed):
        problems.append("the producers' books name a message twice: the demonstration itself is wrong")
    if lost := sent.keys() - came.keys():
        problems.append(f"{len(lost):,} confirmed messages were lost, the first is {min(lost)}")
    if invented := came.keys() - sent.keys():
        problems.append(f"{len(invented):,} messages came that nobody has confirmed, the first is {min(invented)}")
    if changed := [key for key in sent.keys() & came.keys() if sent[key] != came[key]]:
        problems.append(f"{len(changed):,} messages came with another body, the first is {min(changed)}")
    return problems


def _within_session(name: str, receipts: Sequence[Receipt], may_be_late: Mapping[str, int]) -> list[str]:
    problems = []
    counts = Counter((receipt.entry.producer, receipt.entry.sequence) for receipt in receipts)
    if twice := [key for key, count in counts.items() if count > 1]:
        problems.append(f"{name} received {len(twice):,} messages again that it had settled, the first is {min(twice)}")
    last: dict[str, int] = {}
    for receipt in receipts:
        producer, sequence, _ = receipt.entry
        if not receipt.redelivered:
            if sequence < last.get(producer, 0):
                if sequence <= may_be_late.get(producer, 0):
                    continue
                problems.append(f"{name} received {producer} {sequence} after {producer} {last[producer]}")
                break
            last[producer] = sequence
    return problems
