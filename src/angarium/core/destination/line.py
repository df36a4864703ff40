"""The consumers of one subscription, in turn: who is served next, and who takes which message.

    all attached --exclusive? only the first exclusive one--> with credit: the line

The first in line takes what is next, and goes to the end. Where messages have to be looked at, the first in line that
wants one takes it: by its selector, and with a message group only the one that the group belongs to. What a consumer
has looked at and left is not shown to it again; unless groups change hands, for then it may want it after all.
"""
from collections.abc import Iterator
from zlib import crc32

from angarium.core.destination.consumer import Consumer
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import LANE_BITS, LANE_COUNT
from angarium.core.ranges import RangeSet

_GROUP_BUCKETS = 1 << 16  # message groups that share a bucket go to the same consumer: a limit without forgetting


class Line:
    def __init__(self) -> None:
        self.choosy = 0  # consumers that may leave what others take
        self._attached: dict[Consumer, None] = {}
        self._ready: dict[Consumer, None] = {}  # those with credit, in turn
        self._sole: Consumer | None = None  # the exclusive consumer that is served
        self._owners: dict[int, Consumer] = {}  # of message groups, by bucket

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._ready)

    def first(self) -> Consumer | None:
        return next(iter(self._ready), None)

    # -- coming and going --------------------------------------------------------------------------

    def join(self, consumer: Consumer) -> None:
        self._attached[consumer] = None
        if consumer.accepts is not None:
            self._show_all(consumer)
        if consumer.exclusive and self._sole is None:
            self._sole = consumer
            self._ready.clear()
        self.update(consumer)

    def leave(self, consumer: Consumer) -> None:
        del self._attached[consumer]
        self._ready.pop(consumer, None)
        self.choosy -= consumer.unseen is not None
        if self._sole is consumer:
            self._sole = next((other for other in self._attached if other.exclusive), None)
            for other in self._attached:
                self.update(other)
        buckets = [bucket for bucket, owner in self._owners.items() if owner is consumer]
        for bucket in buckets:
            del self._owners[bucket]
        if buckets:
            for other in self._attached:
                if other.unseen is not None:
                    self._show_all(other)

    def update(self, consumer: Consumer) -> None:
        """Its credit may have changed."""
        if consumer.credit > 0 and self._sole in (None, consumer):
            self._ready.setdefault(consumer)
        else:
            self._ready.pop(consumer, None)

    def step_back(self, consumer: Consumer) -> None:
        """It has had its turn."""
        del self._ready[consumer]
        self.update(consumer)

    # -- who takes what ----------------------------------------------------------------------------

    def first_unseen(self, low: int, high: int) -> int | None:
        """The first position in [low, high) that somebody in line has not looked at and left."""
        if low >= high:
            return None
        first: int | None = None
        for consumer in self._ready:
            if consumer.unseen is None:
                return low
            part = consumer.unseen.first_in(low, high)
            if part is not None and (first is None or part[0] < first):
                first = part[0]
        return first

    def choose(self, position: int, fields: BatchFields, index: int) -> Consumer | None:
        group = fields.group(index)
        bucket = None if group is None else crc32(group.encode()) % _GROUP_BUCKETS
        owner = None if bucket is None else self._owners.get(bucket)
        for consumer in self._ready:
            if consumer.unseen is not None and position not in consumer.unseen:
                continue
            if (owner is None or owner is consumer) and (consumer.accepts is None or consumer.accepts(fields[index])):
                if bucket is not None:
                    self._owners[bucket] = consumer
                return consumer
            if consumer.unseen is None:
                self._show_all(consumer)
            assert consumer.unseen is not None
            consumer.unseen.remove(position, position + 1)
        return None

    def _show_all(self, consumer: Consumer) -> None:
        self.choosy += consumer.unseen is None
        consumer.unseen = RangeSet([(0, LANE_COUNT << LANE_BITS)])
