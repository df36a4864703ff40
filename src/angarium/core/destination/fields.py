"""A message as a selector sees it: its properties by name, its header fields by their JMS names.

Decoded message by message, and only when something has to look inside. What is not a map is a message without
properties: it matches what an empty one matches, and is delivered as it is. Only what is asked for is decoded. Where no
selector asks for a header field, its properties alone are shown: a dict answers several times as fast.
"""
from functools import partial
from typing import Any

from angarium.core.destination.headers import Names, map_reader, read_map
from angarium.core.ids import format_id, message_id
from angarium.core.selector.fields import Fields, WithHeaders
from angarium.core.selector.syntax import HEADER_NAMES
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns

_TOGETHER_MAX = 64


class BatchFields:
    """The messages of one batch, each by its index."""

    __slots__ = ("_batch", "_first", "_header_names", "_headers", "_priorities", "_properties", "_read", "_some")

    def __init__(self, batch: Batch, *, names: Names = None) -> None:
        """`names`: all that will be asked for."""
        self._batch = batch
        self._header_names = HEADER_NAMES if names is None else names & HEADER_NAMES
        self._read = map_reader(names)
        self._properties = batch.properties()
        self._headers = batch.headers()
        self._priorities = batch.priorities()
        self._some: list[Fields] = []  # those that were decoded last, from `_first` on
        self._first = 0

    def __getitem__(self, index: int) -> Fields:
        at = index - self._first
        if not 0 <= at < len(self._some):
            # Who goes through them gets more and more at a time, who stops soon has decoded few in vain.
            count = min(2 * len(self._some) or 1, _TOGETHER_MAX) if at == len(self._some) else 1
            self._first, self._some = index, self._decoded(index, min(index + count, self._batch.count))
            at = 0
        return self._some[at]

    def _decoded(self, low: int, high: int) -> list[Fields]:
        encoded = self._properties[low:high] if self._properties is not None else [b""] * (high - low)
        properties = self._read(encoded)
        names = self._header_names
        if not names:
            return [*properties]
        if len(names) == len(HEADER_NAMES):
            return [WithHeaders(found, partial(self._header, low + at)) for at, found in enumerate(properties)]
        for index, found in enumerate(properties, low):
            for name in names:  # whatever a producer may have called a property
                found[name] = self._header(index, name)
        return [*properties]

    def all(self) -> list[Fields]:
        return self._decoded(0, self._batch.count)

    def header(self, index: int, name: str) -> Any:
        return None if self._headers is None else read_map(self._headers[index]).get(name)

    def _header(self, index: int, name: str) -> object:
        match name:
            case "JMSPriority":
                return PRIORITY_DEFAULT if self._priorities is None else self._priorities[index]
            case "JMSTimestamp":
                return self._batch.timestamp_ms
            case "JMSMessageID":
                return format_id(self.message_id(index))
            case "JMSCorrelationID":
                return self.header(index, "correlation_id")
            case "JMSType":
                return self.header(index, "type")
            case "JMSXGroupID":
                return self.group(index)
            case "JMSXGroupSeq":
                return self.header(index, "group_sequence")
            case "JMSDeliveryMode":
                return self.header(index, "delivery_mode") or "PERSISTENT"
        return None

    def message_id(self, index: int) -> bytes:
        return message_id(self._batch.producer, self._batch.sequence(index))

    def group(self, index: int) -> str | None:
        if not self._batch.columns & Columns.GROUP:
            return None
        group = self.header(index, "group")
        return group if isinstance(group, str) else None
