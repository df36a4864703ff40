"""Copying a store while orders go on: the side that is copied from. It remembers nothing between two steps.

Who is host decides the primary: an in-sync backup rather than itself. A guest has one step under way; with more than
`ranges_max` of all guests, or behind what the guest needs, the host asks for patience.
"""
from collections.abc import Callable

from angarium.core.groups.configuration import Replica
from angarium.core.replication.events import Command, RangeRead, ReadRange, ReplicationSettings, SendTo
from angarium.core.replication.local import LocalStore
from angarium.core.replication.messages import RangeAsk, RangeLater, RangePart, RangeSame


class Host:
    def __init__(self, settings: ReplicationSettings, local: LocalStore, next_token: Callable[[], int]) -> None:
        self._settings = settings
        self._local = local
        self._next_token = next_token
        self._reading: dict[int, tuple[Replica, RangeAsk]] = {}

    def __len__(self) -> int:
        return len(self._reading)

    def stop(self) -> None:
        """The epoch is over: what is still read is told to nobody."""
        self._reading.clear()

    def ask(self, sender: Replica, message: RangeAsk, *, is_able: bool) -> list[Command]:
        if (sender, message) in self._reading.values():
            return []  # asked again, and about to be answered
        reason = ""
        if not is_able:
            reason = "not in sync"
        elif self._local.written.number < message.at_least:
            reason = f"at order {self._local.written.number}, not yet at {message.at_least}"
        elif len(self._reading) >= self._settings.ranges_max:
            reason = f"ranges_max {self._settings.ranges_max} are being read"
        if reason:
            return [SendTo(sender, RangeLater(message.group, message.epoch, message.request, reason))]
        token = self._next_token()
        self._reading[token] = (sender, message)
        high = max(message.low, message.high)
        return [
            ReadRange(token, message.table, message.low, high, self._settings.range_bytes, message.digest, True)
        ]

    def range_read(self, event: RangeRead) -> list[Command]:
        sender, asked = self._reading.pop(event.token, (None, None))
        if sender is None or asked is None:
            return []
        if event.data is None:
            same = RangeSame(
                asked.group, asked.epoch, asked.request, event.before, event.after, event.rows, event.whole
            )
            return [SendTo(sender, same)]
        part = RangePart(
            asked.group, asked.epoch, asked.request, event.high, event.before, event.after, event.rows, event.whole
        )
        return [SendTo(sender, part, event.data)]
