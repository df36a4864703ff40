"""How much all destinations of a node may hold together, and whether they hold more.

What each destination holds is noted whenever something of it has been written, so the totals cost one subtraction and
one addition. Past a limit all producers are blocked, or what is new is refused (`node_over_limit`), until it has come
down to `LOW_SHARE`. What is not yet due and what lies in streams counts; what is only retained does not.
"""
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import DestinationSettings
from angarium.core.destination.limits import LOW_SHARE

CODE = "node-full"
_REMEDY = "consume, or raise the limit"


class NodeLimits:
    def __init__(self, settings: DestinationSettings) -> None:
        self.change(settings)
        self._held: dict[int, tuple[int, int]] = {}  # destination -> messages, bytes
        self.messages = 0
        self.bytes = 0
        self.reason = ""  # why nothing more fits; empty if something does

    def change(self, settings: DestinationSettings) -> None:
        self.settings = settings
        self.is_set = bool(settings.node_messages_max or settings.node_bytes_max)

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Code and reason, if what is new is refused."""
        return (CODE, self.reason) if self.reason and self.settings.node_over_limit == "refuse" else None

    def note(self, destination: Destination) -> None:
        if self.is_set:
            messages, stored_bytes = destination.publishing.limits.held()
            before = self._held.get(destination.identity, (0, 0))
            self._held[destination.identity] = (messages, stored_bytes)
            self.messages += messages - before[0]
            self.bytes += stored_bytes - before[1]

    def forget(self, identity: int) -> None:
        messages, stored_bytes = self._held.pop(identity, (0, 0))
        self.messages -= messages
        self.bytes -= stored_bytes

    def has_changed(self) -> bool:
        """Look at the totals; True if `reason` came or went."""
        before, share = self.reason, LOW_SHARE if self.reason else 1.0
        self.reason = ""
        messages_max, bytes_max = self.settings.node_messages_max, self.settings.node_bytes_max
        if messages_max and self.messages > messages_max * share - (share == 1.0):
            limit = f"node_messages_max is {messages_max:,}"
            self.reason = f"the node holds {self.messages:,} messages, and {limit}; {_REMEDY}"
        elif bytes_max and self.bytes > bytes_max * share - (share == 1.0):
            self.reason = f"the node holds {self.bytes:,} bytes, and node_bytes_max is {bytes_max:,}; {_REMEDY}"
        return bool(before) != bool(self.reason)
