"""Goal: what process_delay.py measures is the broker's own delay: a busy machine does not hide it.
Method: delays planted into a real broker, in its event loop and in its thread that writes, while threads of the same
broker that nobody waits for want all processors that there are, and more. Of many, some show it: while one who takes
part sleeps, another may be woken by a timer of its own and wait for a processor, which hides as much of one delay. Who
looks for delays looks many times."""
import asyncio
import sys
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import WAIT_S, running
from tests.process.process_delay import Delay

_PLANTED_S = 0.3
_TRIES = 20
_BODY = bytes(100_000)  # more than the loop gives to the kernel itself: the thread has to write it
_PLANTS = {  # module, class, function that sleeps first
    "loop": ("angarium.runtime.disk", "Disk", "write"),
    "writer": ("angarium.store.durable", "DurableStore", "commit"),
}
# It stands before the broker's command line, and becomes the broker. Hashing does without the interpreter's lock.
_SLOWED = """
import hashlib, importlib, sys, threading, time

module, name, function, planted_s = sys.argv[1:5]
slow = getattr(importlib.import_module(module), name)
done = getattr(slow, function)

def late(*arguments, **named):
    time.sleep(float(planted_s))
    return done(*arguments, **named)

data = bytes(1 << 26)
def burn():
    while True:
        hashlib.sha256(data)

setattr(slow, function, late)
for _ in range(6):
    threading.Thread(target=burn, daemon=True).start()
sys.argv = sys.argv[7:]  # what is given, python -m angarium.cli.main
from angarium.cli.main import main
main()
"""


@pytest.mark.parametrize("where", _PLANTS)
def test_a_delay_of_the_broker_is_seen_however_busy_its_other_threads_are(tmp_path: Path, where: str) -> None:
    prefix = (sys.executable, "-c", _SLOWED, *_PLANTS[where], str(_PLANTED_S))

    async def run() -> list[float]:
        taken: list[float] = []
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send("q", b"it is there")
            while len(taken) < _TRIES and max(taken, default=0.0) <= 0.9 * _PLANTED_S:
                delay = Delay(broker.pid)
                await asyncio.wait_for(session.send("q", _BODY), WAIT_S)
                taken.append(delay.seconds())
        return taken

    with running(tmp_path, command_prefix=prefix) as broker:
        taken = asyncio.run(run())
    assert max(taken) > 0.9 * _PLANTED_S, f"a delay of {_PLANTED_S:g} s is taken for {taken}"
