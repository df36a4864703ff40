"""The consumers of one subscription, in turn: who is served next, and who takes which message.

    all attached --exclusive? only the first exclusive one--> with credit: the line

The first in line takes what is next, and goes to the end. Where messages have to be looked at, the first in line that
wants one takes it: by its selector, and with a message group only the one that the group belongs to. What a consumer
has looked at and left is not shown to it again; unless it was given back meanwhile, or groups change hands, for then
it may want it after all.

A group belongs to the first that took a message of it, until that one closes or is given up: whoever is cut off and
may come back keeps it, as he keeps what he holds. What its owner's selector excludes belongs, in the same way, to the
first other one that takes it. So all messages of a group that the same consumers want go to the same one of them.
"""
from collections.abc import Iterator, Sequence

from angarium.core.checksum import crc32
from angarium.core.destination.consumer import Consumer, ConsumerKey
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import LANE_BITS, LANE_COUNT
from angarium.core.ranges import Range, RangeSet

GROUP_BUCKETS = 1 << 16  # message groups that share a bucket go to the same consumer: a limit without forgetting
_EVERYTHING: Range = (0, LANE_COUNT << LANE_BITS)


class Line:
    def __init__(self) -> None:
        self.choosy = 0  # consumers that may leave what others take
        self._attached: dict[Consumer, None] = {}
        self._ready: dict[Consumer, None] = {}  # those with credit, in turn
        self._sole: Consumer | None = None  # the exclusive consumer that is served
        self._owners: dict[int, list[Consumer]] = {}  # of message groups, by bucket; an earlier one goes first
        self._owning: dict[ConsumerKey, Consumer] = {}  # those that own some, attached or cut off

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._ready)

    def first(self) -> Consumer | None:
        return next(iter(self._ready), None)

    @property
    def sole(self) -> Consumer | None:
        """The exclusive consumer, while which is here nobody else is served."""
        return self._sole

    @property
    def group_count(self) -> int:
        """Buckets that belong to somebody."""
        return len(self._owners)

    # -- coming and going --------------------------------------------------------------------------

    def join(self, consumer: Consumer) -> None:
        self._attached[consumer] = None
        if consumer.accepts is not None:
            self._show_all(consumer)
        if (earlier := self._owning.pop(consumer.key, None)) is not None:  # it is back
            self._owning[consumer.key] = consumer
            for owners in self._owners.values():
                owners[:] = [consumer if owner is earlier else owner for owner in owners]
        if consumer.exclusive and self._sole is None:
            self._sole = consumer
            self._ready.clear()
            self._disown([key for key in self._owning if key != consumer.key])
        self.update(consumer)

    def leave(self, consumer: Consumer, *, may_return: bool) -> None:
        del self._attached[consumer]
        self._ready.pop(consumer, None)
        self.choosy -= consumer.unseen is not None
        if self._sole is consumer:
            self._sole = next((other for other in self._attached if other.exclusive), None)
            for other in self._attached:
                self.update(other)
        if not may_return:
            self._disown([consumer.key])

    def give_up(self, key: ConsumerKey) -> None:
        """One that was cut off will not come back: its groups are free."""
        if (owner := self._owning.get(key)) is not None and owner not in self._attached:
            self._disown([key])

    def _disown(self, keys: list[ConsumerKey]) -> None:
        gone = [self._owning.pop(key) for key in keys if key in self._owning]
        if not gone:
            return
        remaining = {bucket: [o for o in owners if o not in gone] for bucket, owners in self._owners.items()}
        self._owners = {bucket: owners for bucket, owners in remaining.items() if owners}
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

    def owner_of(self, fields: BatchFields, index: int) -> Consumer | None:
        """Whose the message is by its group."""
        group = fields.group(index)
        return None if group is None else self._owner(crc32(group.encode()) % GROUP_BUCKETS, fields, index)

    def choose(
        self, position: int, fields: BatchFields, index: int, behind: Sequence[Consumer] = ()
    ) -> Consumer | None:
        """Who takes the message; whoever is behind is not asked, for it wants something earlier first."""
        group = fields.group(index)
        bucket = None if group is None else crc32(group.encode()) % GROUP_BUCKETS
        owner = None if bucket is None else self._owner(bucket, fields, index)
        for consumer in self._ready:
            if (consumer.unseen is not None and position not in consumer.unseen) or consumer in behind:
                continue
            if owner is consumer or (owner is None and _wants(consumer, fields, index)):
                if bucket is not None and owner is None:
                    self._owners.setdefault(bucket, []).append(consumer)
                    self._owning[consumer.key] = consumer
                return consumer
            if consumer.unseen is None:
                self._show_all(consumer)
            assert consumer.unseen is not None
            consumer.unseen.remove(position, position + 1)
        return None

    def _owner(self, bucket: int, fields: BatchFields, index: int) -> Consumer | None:
        return next((owner for owner in self._owners.get(bucket, ()) if _wants(owner, fields, index)), None)

    def show(self, low: int, high: int) -> None:
        """These positions are free again: whoever has left them may look once more."""
        if self.choosy:
            for consumer in self._attached:
                if consumer.unseen is not None:
                    consumer.unseen.add(low, high)

    def _show_all(self, consumer: Consumer) -> None:
        self.choosy += consumer.unseen is None
        consumer.unseen = RangeSet([_EVERYTHING])


def _wants(consumer: Consumer, fields: BatchFields, index: int) -> bool:
    return consumer.accepts is None or consumer.accepts(fields[index])
