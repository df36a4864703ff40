"""How much all destinations of a node may hold together, and whether they hold more.

What each destination holds is noted whenever something of it has been written, so the totals cost one subtraction and
one addition. What is not yet due and what lies in streams counts; what is only retained does not.

    node_over_limit = "block"    past a limit all producers are told to stop, until it has come down to `LOW_SHARE`
                      "refuse"   what is new is refused meanwhile
                      "oldest"   room is made (`making_room`): the oldest go to the dead message queue
    node_disk_free_bytes_min     what the disk must have room for, by the same policies; but "oldest" blocks then

That queue is on the node, too. Under "block" and "refuse" it counts with all others. Under "oldest" a message that dies
would make no room then, so what lives and what is dead are counted apart, and each may be as much as the limits say.
There, only what is durable counts of what lives: nothing dies for what may never come.
"""
from collections.abc import Iterable

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import DestinationSettings
from angarium.core.destination.limits import LOW_SHARE
from angarium.core.names import DEAD_MESSAGE_QUEUE

CODE = "node-full"
_REMEDY = "consume, or raise the limit"


class Held:
    """Messages and bytes, of each destination and of all."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[int, int]] = {}
        self.messages = 0
        self.bytes = 0

    def note(self, identity: int, messages: int, stored_bytes: int) -> None:
        before = self.of.get(identity, (0, 0))
        self.of[identity] = (messages, stored_bytes)
        self.messages += messages - before[0]
        self.bytes += stored_bytes - before[1]

    def forget(self, identity: int) -> None:
        messages, stored_bytes = self.of.pop(identity, (0, 0))
        self.messages -= messages
        self.bytes -= stored_bytes


class NodeLimits:
    def __init__(self, settings: DestinationSettings) -> None:
        self.notes = 0  # how often something was noted
        self.change(settings)
        self.room_bytes: int | None = None  # of the disk, when it was last measured
        self.reason = ""  # why nothing more fits; empty if something does
        self.stuck = ""  # under "oldest": why no room can be made
        self.stuck_policy = "block"  # what happens meanwhile; or "refuse"
        self.is_quiet = False  # that need not be reported
        self._told = (False, False)  # whether there was a reason, and something was refused, when last looked at

    def change(self, settings: DestinationSettings, destinations: Iterable[Destination] = ()) -> None:
        """What is held was not counted while there were no limits, or was counted otherwise."""
        self.settings = settings
        counts = bool(settings.node_messages_max or settings.node_bytes_max)
        self.is_set = counts or bool(settings.node_disk_free_bytes_min)
        self.makes_room = counts and settings.node_over_limit == "oldest"
        self.living = Held()
        self.dead = Held()  # apart only where room is made
        self.stuck = ""
        for destination in destinations:
            self.note(destination)

    @property
    def messages(self) -> int:
        return self.living.messages

    @property
    def bytes(self) -> int:
        return self.living.bytes

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Code and reason, if what is new is refused."""
        policy = self.settings.node_over_limit
        if self.makes_room and self.reason == self.stuck:
            policy = self.stuck_policy
        return (CODE, self.reason) if self.reason and policy == "refuse" else None

    def note(self, destination: Destination) -> None:
        if not self.is_set:
            return
        self.notes += 1
        limits = destination.publishing.limits
        if not self.makes_room:
            self.living.note(destination.identity, *limits.held())
        elif destination.record.name == DEAD_MESSAGE_QUEUE:
            self.dead.note(destination.identity, *limits.held())
        else:
            self.living.note(destination.identity, *limits.durable())

    def forget(self, identity: int) -> None:
        self.living.forget(identity)
        self.dead.forget(identity)

    def has_changed(self) -> bool:
        """Look at the totals; True if `reason` came or went, or what follows from it is another."""
        share = LOW_SHARE if self.reason else 1.0
        self.reason = self._disk_over(share) or (self.stuck if self.makes_room else self._over(share))
        before, self._told = self._told, (bool(self.reason), self.refusal is not None)
        return before != self._told

    def clear(self) -> None:
        self.reason = self.stuck = ""
        self._told = (False, False)

    def _over(self, share: float) -> str:
        messages_max, bytes_max = self.settings.node_messages_max, self.settings.node_bytes_max
        if messages_max and self.messages > messages_max * share - (share == 1.0):
            limit = f"node_messages_max is {messages_max:,}"
            return f"the node holds {self.messages:,} messages, and {limit}; {_REMEDY}"
        if bytes_max and self.bytes > bytes_max * share - (share == 1.0):
            return f"the node holds {self.bytes:,} bytes, and node_bytes_max is {bytes_max:,}; {_REMEDY}"
        return ""

    def _disk_over(self, share: float) -> str:
        bytes_min = self.settings.node_disk_free_bytes_min
        if not bytes_min or self.room_bytes is None or self.room_bytes >= bytes_min / share:
            return ""
        limit = f"node_disk_free_bytes_min is {bytes_min:,}"
        return f"the disk has room for {self.room_bytes:,} more bytes, and {limit}; consume, or give it room"

    def excess(self, held: Held) -> tuple[int, int]:
        """By how many messages and bytes it is too much; 0: it is not."""
        messages_max, bytes_max = self.settings.node_messages_max, self.settings.node_bytes_max
        messages = max(0, held.messages - messages_max) if messages_max else 0
        return messages, max(0, held.bytes - bytes_max) if bytes_max else 0

    def is_low(self, held: Held, more: tuple[int, int] = (0, 0)) -> bool:
        """It is well below the limits, even with so many more messages and bytes."""
        messages_max, bytes_max = self.settings.node_messages_max, self.settings.node_bytes_max
        is_much = bool(messages_max) and held.messages + more[0] > messages_max * LOW_SHARE
        return not is_much and (not bytes_max or held.bytes + more[1] <= bytes_max * LOW_SHARE)

    def dead_room(self) -> int:
        """How many more messages may die of these limits."""
        messages_max, bytes_max = self.settings.node_messages_max, self.settings.node_bytes_max
        if bytes_max and self.dead.bytes >= bytes_max:
            return 0
        return max(0, messages_max - self.dead.messages) if messages_max else 1 << 62
