"""Names of destinations and subscriptions: what is allowed, in one place.

A name is dot-separated segments of ASCII letters, digits, `-` and `_`. It does not begin with `-`, which a command line
would take for an option. A leading underscore is reserved for well-known destinations (`_ADMIN`, `_LOG`, `_DMQ`), which
clients cannot create, and for temporary ones, whose names `_TEMP.<id>` only the broker makes: clients use them as they
were told. To `_ADMIN` clients may only send, from `_LOG` and `_DMQ` only receive. In a cluster each replica group has a
`_DMQ` of its own: `_DMQ.2` is that of group number 2. Likewise the logs `_TRACE.2`, which clients may only read by
position.
"""
import base64
import re

from angarium.core.errors import Rejected

NAME_CHARACTERS_MAX = 255
QUERY_BYTES_MAX = 200  # of the name of a query that stages messages: it is part of a key
TEMPORARY_PREFIX = "_TEMP."
DEAD_MESSAGE_QUEUE = "_DMQ"
EVENT_LOG = "_LOG"
TRACE_PREFIX = "_TRACE."  # and the number of a replica group, which has that log for its own destinations
ADMINISTRATION = "_ADMIN"
_DEAD_MESSAGE_QUEUE_OF = re.compile(r"_DMQ\.([1-9][0-9]{0,8})", re.ASCII)
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def check_name(name: str, *, what: str = "destination", reading: bool = False, sending: bool = False) -> None:
    """Raise `Rejected` with code `bad-name` or `reserved-name` if a client may not use the name."""
    if (reading and (name == EVENT_LOG or is_dead_message_queue(name))) or (sending and name == ADMINISTRATION):
        return
    check_form(name, what=what)
    if name.startswith("_") and not (what == "destination" and is_temporary(name)):
        raise Rejected("reserved-name", f"{what} name {name!r}: a leading underscore is reserved")


def check_form(name: str, *, what: str = "destination") -> None:
    """Raise `Rejected` with code `bad-name` if nothing can have the name, whoever made it."""
    if len(name) > NAME_CHARACTERS_MAX:
        raise Rejected("bad-name", f"{what} name of {len(name)} characters exceeds {NAME_CHARACTERS_MAX}")
    if not _NAME.fullmatch(name):
        pattern = "; it is no pattern" if "*" in name or "?" in name else ""
        raise Rejected(
            "bad-name",
            f"{what} name {name!r}: use letters, digits, '-' and '_' in segments separated by single dots, "
            f"and no '-' at the beginning{pattern}",
        )


def is_dead_message_queue(name: str) -> bool:
    return name == DEAD_MESSAGE_QUEUE or group_named(name) is not None


def dead_message_queue_of(group: int) -> str:
    """The one of the replica group with that number."""
    return f"{DEAD_MESSAGE_QUEUE}.{group}"


def group_named(name: str) -> int | None:
    """The number of the replica group whose dead message queue is meant; None if it is anything else."""
    found = _DEAD_MESSAGE_QUEUE_OF.fullmatch(name)
    return None if found is None else int(found[1])


def group_traced(name: str) -> int | None:
    """The number of the replica group whose log of traces is meant; None if it is anything else."""
    number = name.removeprefix(TRACE_PREFIX) if name.startswith(TRACE_PREFIX) else ""
    return int(number) if number.isdecimal() and len(number) < 10 else None


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX)


def temporary_name(identity: bytes) -> str:
    return TEMPORARY_PREFIX + base64.b32encode(identity).decode("ascii").rstrip("=").lower()
