"""A message as a selector sees it: its properties by name, its header fields by their JMS names.

Decoded message by message, and only when something has to look inside. What is not a map is a message without
properties: it matches what an empty one matches, and is delivered as it is. Where no selector asks for a header field,
its properties alone are shown: a dict answers several times as fast.
"""
from functools import partial
from typing import Any

from angarium.core.destination.headers import read_map
from angarium.core.ids import format_id, message_id
from angarium.core.selector.fields import Fields, WithHeaders
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns

MessageFields = Fields


class BatchFields:
    """The messages of one batch, each by its index."""

    __slots__ = ("_batch", "_headers", "_last", "_priorities", "_properties", "_shows_headers")

    def __init__(self, batch: Batch, *, shows_headers: bool = True) -> None:
        self._batch = batch
        self._shows_headers = shows_headers
        self._properties = batch.properties()
        self._headers = batch.headers()
        self._priorities = batch.priorities()
        self._last: tuple[int, Fields] | None = None  # several consumers look at one message

    def __getitem__(self, index: int) -> Fields:
        if self._last is None or self._last[0] != index:
            self._last = index, self._decoded(index)
        return self._last[1]

    def _decoded(self, index: int) -> Fields:
        properties = read_map(self._properties[index]) if self._properties is not None else {}
        return properties if not self._shows_headers else WithHeaders(properties, partial(self._header, index))

    def all(self) -> list[Fields]:
        return [self._decoded(index) for index in range(self._batch.count)]

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
