"""What a node is: a number drawn once and kept in its store, and a fresh incarnation at each start."""
from dataclasses import dataclass

from angarium.core.ids import NODE_MAX, GlobalIds
from angarium.core.storage import Operation, Put, Table

_NUMBER_KEY = b"node-number"
_START_KEY = b"last-start-ms"


@dataclass(frozen=True, slots=True)
class Identity:
    ids: GlobalIds
    incarnation: bytes
    operations: list[Operation]  # to be written before the first id is used


def take_up_identity(stored: dict[bytes, bytes], *, site: int, wall_ms: int, chance: int) -> Identity:
    """`chance` is any random number: it becomes the node's number if it has none yet.

    A clock that was set back must not repeat an incarnation: the start is at least one millisecond after the last.
    """
    number = int.from_bytes(stored[_NUMBER_KEY], "big") if _NUMBER_KEY in stored else chance & NODE_MAX
    last_start_ms = int.from_bytes(stored.get(_START_KEY, b""), "big")
    start_ms = max(wall_ms, last_start_ms + 1)
    ids = GlobalIds(start_ms=start_ms, site=site, node=number)
    return Identity(
        ids,
        ids.next(),
        [
            Put(Table.NODE, _NUMBER_KEY, number.to_bytes(3, "big")),
            Put(Table.NODE, _START_KEY, start_ms.to_bytes(8, "big")),
        ],
    )
