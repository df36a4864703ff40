"""The queue `_DMQ` of a message manager: made when it is first needed, and filled by the broker alone."""
from typing import TYPE_CHECKING

from angarium.core.destination import dead_letters
from angarium.core.destination.delivery import Death
from angarium.core.destination.destination import Destination
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.names import DEAD_MESSAGE_QUEUE
from angarium.core.storage import Operation
from angarium.core.wire.frames import DestinationKind

if TYPE_CHECKING:
    from angarium.core.destination.destinations import Destinations

# What is dead dies no second death: a limit on `_DMQ` itself, say, drops what it would bury.
RECORD = DestinationRecord(DEAD_MESSAGE_QUEUE, DestinationKind.QUEUE, buries=False)


class DeadMessageQueue:
    def __init__(self, manager: "Destinations") -> None:
        self._manager = manager

    def bury(
        self, state: DestinationState, subscription: Subscription, death: Death, pending: PendingWrite, wall_ms: int
    ) -> list[Operation]:
        """Append what died there, in the write that settles it there."""
        queue, operations = self._queue(pending)
        other = PendingWrite(destination=queue.identity)
        batch = dead_letters.dead_batch(state, subscription, death, wall_ms=wall_ms)
        operations += queue.publishing.append(batch, other, lane=0)
        pending.others.append(other)
        return operations

    def _queue(self, pending: PendingWrite) -> tuple[Destination, list[Operation]]:
        known = self._manager.find(DEAD_MESSAGE_QUEUE)
        if known is not None:
            return known, []
        queue, operations = self._manager.created(RECORD)
        pending.others.append(self._manager.creation(queue))
        return queue, operations
