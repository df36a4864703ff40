"""Goal: after kill -9 at any moment everything that was confirmed is there.
Method: a child commits groups in a loop, some by way of the kernel, and reports each one over a pipe once it is
durable. The parent kills it after a random number of reports, reopens the directory, looks, and starts the next child
on it."""
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from angarium.core.storage import Table, key_of
from angarium.store.durable import DurableStore
from angarium.store.interface import Item
from tests.store.disks import SMALL

CHILD = """
import sys
from random import Random
from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from tests.store.disks import SMALL, give

store = DurableStore.open(sys.argv[1], SMALL)
number, random = int(sys.argv[2]), Random(int(sys.argv[2]))
while True:
    number += 1
    value = number.to_bytes(8, "big") * random.choice((1, 100, 1000))
    group = [
        Put(Table.LOG, key_of(1), number.to_bytes(8, "big")),
        Put(Table.BATCH, position_key(1, number), value),
        DeleteRange(Table.BATCH, key_of(1), position_key(1, max(number - 20, 0))),
    ]
    if random.random() < 0.3 or not give(store, group):
        store.commit(group)
    sys.stdout.buffer.write(number.to_bytes(8, "big"))
    sys.stdout.buffer.flush()
"""
ROUNDS = 8


def run_until_killed(path: Path, number: int, reports: int) -> int:
    """The last group that the child reported as confirmed."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    command = [sys.executable, "-c", CHILD, str(path), str(number)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    confirmed = b""
    for _ in range(reports):
        confirmed = child.stdout.read(8) or confirmed
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read()  # reports written before the kill count as well
    child.wait()
    confirmed = (confirmed + rest[: len(rest) // 8 * 8])[-8:]
    child.stdout.close()
    return int.from_bytes(confirmed, "big")


def test_kill_9(tmp_path: Path) -> None:
    random = Random(9)
    number = 0
    for _ in range(ROUNDS):
        confirmed = run_until_killed(tmp_path, number, random.randrange(1, 300))
        assert confirmed > number
        store = DurableStore.open(tmp_path, SMALL)
        last = store.get(Table.LOG, key_of(1))
        assert last is not None
        number = int.from_bytes(last, "big")
        assert confirmed <= number <= confirmed + 1  # the group in flight may have made it
        items = store.scan(Table.BATCH, key_of(1), key_of(2), limit=1_000, bytes_max=1 << 30)
        ends = [int.from_bytes(item.key[8:], "big") for item in items]
        assert ends == list(range(max(number - 20, 1), number + 1))
        for end, item in zip(ends, items, strict=True):
            assert isinstance(item, Item)
            assert item.value[:8] == end.to_bytes(8, "big")
        assert store.recovery.damages == ()
        store.close()
