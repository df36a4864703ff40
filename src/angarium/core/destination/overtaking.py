"""Which writes may go ahead of others on a full disk: those that make room, so that consumers can empty it.

A write that makes room leaves behind what takes room. Only one thing must not be left behind: an earlier write of
the same subscription, which would undo the later one when its turn comes. Such a one exists where a transaction
both sends and settles.
"""
from collections.abc import Iterable

from angarium.core.destination.events import Write
from angarium.core.storage import Put, Table


def overtaking(waiting: Iterable[Write]) -> list[Write]:
    """Those of the waiting writes that may be written now, in order."""
    going: list[Write] = []
    held: set[bytes] = set()  # subscriptions of writes that stay
    for write in waiting:
        keys = {o.key for o in write.operations if isinstance(o, Put) and o.table == Table.SUBSCRIPTION}
        if write.freeing and keys.isdisjoint(held):
            going.append(write)
        else:
            held |= keys
    return going
