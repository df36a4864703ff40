"""A message as a selector sees it: its properties by name, its header fields by their JMS names.

Decoded message by message, and only when something has to look inside. What is not a map is a message without
properties: it matches what an empty one matches, and is delivered as it is. Only what is asked for is decoded. Where no
selector asks for a header field, its properties alone are shown: a dict answers several times as fast.
"""
from collections.abc import Sequence
from functools import partial
from typing import Any

from angarium.core.destination.headers import Names, map_reader, read_map, value_reader
from angarium.core.ids import format_id, message_id
from angarium.core.selector.fields import Fields, WithHeaders
from angarium.core.selector.syntax import HEADER_NAMES
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns

_GROUP = int(Columns.GROUP)  # an enum takes ten times as long, and every message of a queue is asked
_TOGETHER_MAX = 64
_HEADERS = {
    "JMSCorrelationID": "correlation_id",
    "JMSDeliveryMode": "delivery_mode",
    "JMSType": "type",
    "JMSXGroupSeq": "group_sequence",
}


class BatchFields:
    """The messages of one batch, each by its index."""

    __slots__ = ("_batch", "_first", "_header_names", "_read", "_some")

    def __init__(self, batch: Batch, *, names: Names = None) -> None:
        """`names`: all that will be asked for."""
        self._batch = batch
        self._header_names = HEADER_NAMES if names is None else names & HEADER_NAMES
        self._read = map_reader(names)
        self._some: list[Fields] = []  # those that were decoded last, from `_first` on
        self._first = 0

    def __getitem__(self, index: int) -> Fields:
        at = index - self._first
        if not 0 <= at < len(self._some):
            # Who goes through them gets more and more at a time, who stops soon has decoded few in vain.
            count = min(4 * len(self._some) or 1, _TOGETHER_MAX) if at == len(self._some) else 1
            self._first, self._some = index, self._decoded(index, min(index + count, self._batch.count))
            at = 0
        return self._some[at]

    def _decoded(self, low: int, high: int) -> list[Fields]:
        values = self._batch.properties_in(low, high)
        properties = [{} for _ in range(low, high)] if values is None else self._read(values)
        names = self._header_names
        if not names:
            return [*properties]
        if len(names) == len(HEADER_NAMES):
            return [WithHeaders(found, partial(self._header, low + at)) for at, found in enumerate(properties)]
        for name in names:  # whatever a producer may have called a property
            for found, value in zip(properties, self._column(name, low, high), strict=True):
                found[name] = value
        return [*properties]

    def _header(self, index: int, name: str) -> object:
        return self._column(name, index, index + 1)[0]

    def _column(self, name: str, low: int, high: int) -> Sequence[object]:
        """A header field of these messages."""
        match name:
            case "JMSPriority":
                priorities = self._batch.priorities()
                return [PRIORITY_DEFAULT] * (high - low) if priorities is None else priorities[low:high]
            case "JMSTimestamp":
                return [self._batch.timestamp_ms] * (high - low)
            case "JMSMessageID":
                return [format_id(self.message_id(index)) for index in range(low, high)]
            case "JMSXGroupID":
                return [self.group(index) for index in range(low, high)]
        key = _HEADERS[name]
        absent = "PERSISTENT" if name == "JMSDeliveryMode" else None
        values = self._batch.headers_in(low, high)
        if values is None:
            return [absent] * (high - low)
        return value_reader(key)(values, absent)

    def all(self) -> list[Fields]:
        return self._decoded(0, self._batch.count)

    def between(self, low: int, high: int) -> list[Fields]:
        """Of who will ask about every one of them: there is nothing to be remembered."""
        return self._decoded(low, high)

    def header(self, index: int, name: str) -> Any:
        return read_map(self._batch.headers_of(index)).get(name)

    def message_id(self, index: int) -> bytes:
        return message_id(self._batch.producer, self._batch.sequence(index))

    def group(self, index: int) -> str | None:
        if not self._batch.columns & _GROUP:
            return None
        group = self.header(index, "group")
        return group if isinstance(group, str) else None
