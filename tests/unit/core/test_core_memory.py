"""Goal: what waits costs the message manager next to nothing: no message anything, a batch some bytes at the most; and
a subscription that is not durable costs nothing once it is closed.
Method: all that can be reached from the machine is weighed, after many batches and after many more."""
import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from angarium.core.destination.gauge import MARKS_MAX
from angarium.core.wire.frames import DestinationKind, Start
from angarium.core.wire.packing import NO_COLUMNS, MessageColumns
from tests.unit.core.core_manager import World

_BATCH_BYTES_MAX = 30
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type)


def _weigh(machine: object) -> int:
    """Bytes of all that it holds, however deep, and of nothing that is code."""
    seen, waiting, total = {id(machine)}, [machine], 0
    while waiting:
        each = waiting.pop()
        total += sys.getsizeof(each)
        for held in gc.get_referents(each):
            if id(held) not in seen and not isinstance(held, _CODE):
                seen.add(id(held))
                waiting.append(held)
    return total


class Waiting:
    """A destination whose consumers are away."""

    def __init__(self, kind: DestinationKind, columns: MessageColumns = NO_COLUMNS) -> None:
        self.world = World()
        self.world.is_checked = False
        self.destination = self.world.locate("d", kind)
        if kind is DestinationKind.TOPIC:
            for name in ("one", "two"):
                self.world.consumer(self.destination, subscription=name, start=Start.OLDEST, durable=True).close()
        self._producer = self.world.producer(self.destination)
        self._columns = columns

    def publish(self, batches: int, messages: int = 1) -> None:
        bodies = [b"body"] * messages
        for _ in range(batches):
            self._producer.publish(*bodies, columns=self._columns)
        self.world.rest()

    def weigh(self) -> int:
        return _weigh(self.world.manager)


@pytest.mark.parametrize("kind", [DestinationKind.QUEUE, DestinationKind.TOPIC], ids=["queue", "topic"])
@pytest.mark.parametrize("expiring", [False, True], ids=["for ever", "for a while"])
def test_a_batch_that_waits_costs_some_bytes_at_the_most(kind: DestinationKind, expiring: bool) -> None:
    waiting = Waiting(kind, MessageColumns(expiries_ms=[1 << 50]) if expiring else NO_COLUMNS)
    waiting.publish(MARKS_MAX // 2)  # until what is bounded has its size, or half of it
    before, more = waiting.weigh(), 5 * MARKS_MAX
    waiting.publish(more)
    grown = (waiting.weigh() - before) / more
    print(f"{before:,} bytes, and {grown:.1f} for each batch")
    assert grown < _BATCH_BYTES_MAX


def test_a_message_that_waits_costs_nothing() -> None:
    batches, messages = 500, 50
    few, many = Waiting(DestinationKind.QUEUE), Waiting(DestinationKind.QUEUE)
    few.publish(batches)
    many.publish(batches, messages)
    grown = (many.weigh() - few.weigh()) / (batches * (messages - 1))
    print(f"{grown:.3f} bytes for each message")
    assert grown < 0.5


def test_a_subscription_that_is_not_durable_costs_nothing_once_closed() -> None:
    """Beside a durable one that lags, so that the log waits for that one, and looks at no other."""
    waiting = Waiting(DestinationKind.TOPIC)
    waiting.publish(10)
    passed: list[int] = []

    def pass_by(count: int) -> None:
        session = waiting.world.session()
        for number in range(count):
            consumer = waiting.world.consumer(waiting.destination, session=session, number=number % 3)
            if number % 10 == 0:  # some with a message in their hands
                waiting.publish(1)
            consumer.close()
        waiting.world.end(session, closed=True)
        passed.append(waiting.weigh())

    for _ in range(2):
        pass_by(1_000)
    grown = passed[1] - passed[0]
    print(f"{grown:,} bytes more after a thousand more")
    assert grown < 1_000 * 10
