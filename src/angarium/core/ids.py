"""Global ids: unique across nodes, restarts and sites, made without asking anyone.

    | 48 bits start_ms | 16 bits site | 24 bits node | 40 bits counter |

`start_ms` is when this incarnation of the node started, `node` a number that the node drew once and keeps in
its store, `site` is configured where several sites exchange messages. The counter starts at zero for each
incarnation; should it overflow, the start moves on by a millisecond. Ids are 16 bytes, so equality, hashing and
ordering are those of `bytes`; ids of one incarnation sort in the order in which they were made.

Only nodes make ids (clients receive theirs when they open a session or a producer). A message's id is its
producer's id and its sequence there: 24 bytes that nobody has to assign.

Destinations have short ids of their own, unique in a cluster: the number of the replica group that has the destination,
and 40 bits that count from 1 in that group. So an id alone says where to send what is meant for it.
"""
import base64

GLOBAL_ID_BYTES = 16
MESSAGE_ID_BYTES = 24
COUNTER_BITS = 40
NODE_MAX = (1 << 24) - 1
SITE_MAX = (1 << 16) - 1
DESTINATION_BITS = 40  # of a destination's id, below the number of its group
GROUP_MAX = (1 << 23) - 1  # so that an id is positive in 64 bits, whoever reads them
ANYBODY = bytes(GLOBAL_ID_BYTES)  # in place of a session: what a message manager has any client manager pass on
_ORIGIN = slice(6, 11)  # behind the start


class GlobalIds:
    """The generator of one node incarnation."""

    def __init__(self, *, start_ms: int, site: int, node: int) -> None:
        if not 0 <= site <= SITE_MAX:
            raise ValueError(f"site {site} is outside 0..{SITE_MAX}")
        if not 0 <= node <= NODE_MAX:
            raise ValueError(f"node {node} is outside 0..{NODE_MAX}")
        self._prefix = (start_ms << 40) | (site << 24) | node
        self._counter = 0

    def next(self) -> bytes:
        identity = (self._prefix << COUNTER_BITS) | self._counter
        self._counter += 1
        if self._counter >> COUNTER_BITS:
            self._counter = 0
            self._prefix += 1 << 40
        return identity.to_bytes(GLOBAL_ID_BYTES, "big")


def counter_of(identity: bytes) -> int:
    """What tells it from others of the same incarnation."""
    return int.from_bytes(identity, "big") & ((1 << COUNTER_BITS) - 1)


def group_of(destination: int) -> int:
    """The number of the replica group that has the destination of this id."""
    return destination >> DESTINATION_BITS


def destination_id(group: int, number: int) -> int:
    if not 0 <= group <= GROUP_MAX:
        raise ValueError(f"group {group} is outside 0..{GROUP_MAX:,}")
    return group << DESTINATION_BITS | number


def origin_of(identity: bytes) -> str:
    """Who has made the id: site and node, in hexadecimal."""
    return identity[_ORIGIN].hex()


def message_id(producer: bytes, sequence: int) -> bytes:
    return producer + sequence.to_bytes(8, "big")


def parse_id(text: str) -> bytes:
    """What `format_id` made of a message's id; raises ValueError."""
    digits = text.removeprefix("ID:").upper()
    try:
        identity = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except ValueError:
        identity = b""
    if len(identity) != MESSAGE_ID_BYTES:
        raise ValueError(f"{text!r} is no message id: 'ID:' and 39 letters and digits")
    return identity


def format_id(identity: bytes) -> str:
    """`ID:` and base 32 without padding: what people see and may paste back."""
    return "ID:" + base64.b32encode(identity).decode("ascii").rstrip("=")
