"""Payloads that came over the group's channel, so that an order need not repeat them.

A client manager's message reaches every replica. The primary recognises a value that is the very object it has heard,
and refers to it; a backup looks it up. The oldest are forgotten first; nothing depends on their being here.
"""
from collections.abc import Sequence

from angarium.core.replication.messages import PutThere, Reference
from angarium.core.storage import Operation, Put


class Payloads:
    def __init__(self, *, bytes_max: int, reference_bytes_min: int) -> None:
        self.references: dict[int, Reference] = {}  # by the identity of an object that is kept below
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._reference_bytes_min = reference_bytes_min
        self._payloads: dict[tuple[bytes, int], bytes] = {}  # (sender, sequence), oldest first

    def add(self, sender: bytes, sequence: int, payload: bytes) -> None:
        key = (sender, sequence)
        if not self._reference_bytes_min <= len(payload) <= self._bytes_max or key in self._payloads:
            return
        self._payloads[key] = payload
        self.references[id(payload)] = Reference(sender, sequence, 0, len(payload))
        self.size_bytes += len(payload)
        while self.size_bytes > self._bytes_max:
            oldest = self._payloads.pop(next(iter(self._payloads)))
            self.references.pop(id(oldest), None)
            self.size_bytes -= len(oldest)

    def find(self, reference: Reference) -> bytes | None:
        payload = self._payloads.get((reference.sender, reference.sequence))
        end = reference.offset + reference.length
        if payload is None or reference.offset < 0 or end > len(payload):
            return None
        return payload if reference.length == len(payload) else payload[reference.offset : end]

    def resolve(self, operations: Sequence[Operation | PutThere]) -> list[Operation] | None:
        """With every value in its place; None if one is missing."""
        resolved: list[Operation] = []
        for operation in operations:
            if isinstance(operation, PutThere):
                value = self.find(operation.value)
                if value is None:
                    return None
                resolved.append(Put(operation.table, operation.key, value))
            else:
                resolved.append(operation)
        return resolved
