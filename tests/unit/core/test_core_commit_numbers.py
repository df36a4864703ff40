"""Goal: numbers of transactions that come with a destination are remembered, and cost no other."""
from angarium.core.storage import Put
from angarium.core.transaction.numbers import CommitNumbers


def test_numbers_that_come_with_a_destination_push_out_none_of_the_groups_own() -> None:
    numbers = CommitNumbers(sessions_max=5)
    own = [b"own%d" % number for number in range(3)]
    for session in own:
        numbers.commit(session, 7, 1.0)
    rows = {b"src%d" % number: (3).to_bytes(8, "big") + (9_000).to_bytes(8, "big") for number in range(4)}
    operations = numbers.learn({**rows, own[0]: (9).to_bytes(8, "big") + bytes(8)}, 2.0)
    assert list(numbers.last) == [b"src0", b"src1", *own] and numbers.last[own[0]] == 9
    numbers.commit(b"next", 1, 3.0)
    assert list(numbers.last) == [b"src1", *own, b"next"], "who came with it is forgotten first"
    again = CommitNumbers(sessions_max=5)
    again.restore({put.key: put.value for put in operations if isinstance(put, Put)})
    assert list(again.last)[-1] == own[0], "also after a restart"
