"""Which writes may go ahead of others on a full disk: those that make room, so that consumers can empty it.

A write that makes room leaves behind what takes room. Only one thing must not be left behind: an earlier write of
the same subscription, which would undo the later one when its turn comes. Such a one exists where a transaction
both sends and settles. The pages of a subscription are only written, and deleted, together with its record.
"""
from collections.abc import Iterable

from angarium.core.destination.events import Write
from angarium.core.storage import Operation, Put, Table


def overtaking(waiting: Iterable[Write]) -> list[Write]:
    """Those of the waiting writes that may be written now, in order."""
    going: list[Write] = []
    held: set[bytes] = set()  # subscriptions of writes that stay
    for write in waiting:
        about = [operation for operation in write.operations if operation.table == Table.SUBSCRIPTION]
        if write.freeing and not any(_concerns(operation, held) for operation in about if held):
            going.append(write)
        else:
            held.update(operation.key for operation in about if isinstance(operation, Put))
    return going


def _concerns(operation: Operation, keys: set[bytes]) -> bool:
    if isinstance(operation, Put):
        return operation.key in keys
    return any(operation.low <= key < operation.high for key in keys)
