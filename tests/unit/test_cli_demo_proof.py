"""Goal: the demonstration's proof fails for every kind of fault, and only then.
Method: honest books, then one planted fault in them."""
import random

import pytest

from benchmarks.demo_proof import Entry, Receipt, book_hash, digest, prove


def _entries(producer: str, count: int) -> list[Entry]:
    return [Entry(producer, number, digest(f"{producer} {number}".encode())) for number in range(1, count + 1)]


def _shared(confirmed: list[Entry], seed: int) -> dict[str, list[Receipt]]:
    """Two consumers that share a queue: each in order, together everything."""
    chance = random.Random(seed)
    sessions: dict[str, list[Receipt]] = {"first": [], "second": []}
    for entry in confirmed:
        sessions[chance.choice(["first", "second"])].append(Receipt(entry, False))
    return sessions


CONFIRMED = _entries("a", 50) + _entries("b", 50)


@pytest.mark.parametrize("seed", range(20))
def test_honest_books_agree(seed: int) -> None:
    verdict = prove("queue", CONFIRMED, _shared(CONFIRMED, seed))
    assert verdict.holds
    assert verdict.confirmed_hash == verdict.received_hash
    assert verdict.confirmed_count == verdict.received_count == 100


def test_one_lost_message_is_found() -> None:
    sessions = _shared(CONFIRMED, 1)
    lost = sessions["first"].pop(7).entry
    verdict = prove("queue", CONFIRMED, sessions)
    assert verdict.problems == [f"1 confirmed messages were lost, the first is {(lost.producer, lost.sequence)}"]
    assert verdict.confirmed_hash != verdict.received_hash


def test_a_message_that_nobody_confirmed_is_found() -> None:
    sessions = _shared(CONFIRMED, 1)
    sessions["first"].append(Receipt(Entry("c", 1, b""), False))
    assert "nobody has confirmed" in prove("queue", CONFIRMED, sessions).problems[0]


def test_a_changed_body_is_found() -> None:
    sessions = _shared(CONFIRMED, 1)
    changed = sessions["second"][3]
    sessions["second"][3] = changed._replace(entry=changed.entry._replace(digest=digest(b"other")))
    verdict = prove("queue", CONFIRMED, sessions)
    assert "another body" in verdict.problems[0]
    assert verdict.confirmed_hash != verdict.received_hash


@pytest.mark.parametrize("redelivered", [False, True])
def test_a_message_twice_in_one_session_is_found_whatever_the_broker_says_about_it(redelivered: bool) -> None:
    sessions = _shared(CONFIRMED, 1)
    sessions["first"].append(sessions["first"][-1]._replace(redelivered=redelivered))
    assert any("again that it had settled" in problem for problem in prove("queue", CONFIRMED, sessions).problems)


def test_swapped_messages_are_found_unless_one_was_redelivered() -> None:
    sessions = {"only": [Receipt(entry, False) for entry in CONFIRMED]}
    receipts = sessions["only"]
    receipts[10], receipts[11] = receipts[11], receipts[10]
    assert prove("queue", CONFIRMED, sessions).problems == ["only received a 11 after a 12"]
    receipts[11] = receipts[11]._replace(redelivered=True)
    assert prove("queue", CONFIRMED, sessions).holds


def test_the_hash_ignores_order_and_nothing_else() -> None:
    shuffled = random.Random(3).sample(CONFIRMED, len(CONFIRMED))
    assert book_hash(shuffled) == book_hash(CONFIRMED)
    assert book_hash(CONFIRMED[:-1]) != book_hash(CONFIRMED)


def _late(sequence: int) -> dict[str, list[Receipt]]:
    """The first consumer gets a message of producer `a` after a later one."""
    entries = _entries("a", 50)
    kept = [Receipt(entry, False) for entry in entries if entry.sequence != sequence]
    return {"first": [*kept, Receipt(entries[sequence - 1], False)], "second": []}


def test_who_shares_a_queue_may_get_late_what_was_on_its_way_at_a_kill() -> None:
    assert prove("queue", _entries("a", 50), _late(20), {"a": 20}).holds


def test_what_was_sent_after_the_kill_may_not_be_late() -> None:
    assert "received a 20 after a 50" in prove("queue", _entries("a", 50), _late(20), {"a": 19}).problems[0]


def test_who_is_alone_gets_nothing_late() -> None:
    alone = {"first": _late(20)["first"]}
    assert "received a 20 after a 50" in prove("topic", _entries("a", 50), alone, {"a": 50}).problems[0]
