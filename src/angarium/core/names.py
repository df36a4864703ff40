"""Names of destinations and subscriptions: what is allowed, in one place.

A name is dot-separated segments of ASCII letters, digits, `-` and `_`. It does not begin with `-`, which a command line
would take for an option. A leading underscore is reserved for well-known destinations (`_ADMIN`, `_LOG`, `_DMQ`), which
clients cannot create, and for temporary ones, whose names `_TEMP.<id>` only the broker makes: clients use them as they
were told. To `_ADMIN` clients may only send, from `_LOG` and `_DMQ` only receive.
"""
import base64
import re

from angarium.core.errors import Rejected

NAME_CHARACTERS_MAX = 255
QUERY_BYTES_MAX = 200  # of the name of a query that stages messages: it is part of a key
TEMPORARY_PREFIX = "_TEMP."
DEAD_MESSAGE_QUEUE = "_DMQ"
EVENT_LOG = "_LOG"
ADMINISTRATION = "_ADMIN"
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def check_name(name: str, *, what: str = "destination", reading: bool = False, sending: bool = False) -> None:
    """Raise `Rejected` with code `bad-name` or `reserved-name` if a client may not use the name."""
    if (reading and name in (DEAD_MESSAGE_QUEUE, EVENT_LOG)) or (sending and name == ADMINISTRATION):
        return
    if len(name) > NAME_CHARACTERS_MAX:
        raise Rejected("bad-name", f"{what} name of {len(name)} characters exceeds {NAME_CHARACTERS_MAX}")
    if not _NAME.fullmatch(name):
        raise Rejected(
            "bad-name",
            f"{what} name {name!r}: use letters, digits, '-' and '_' in segments separated by single dots, "
            "and no '-' at the beginning",
        )
    if name.startswith("_") and not (what == "destination" and is_temporary(name)):
        raise Rejected("reserved-name", f"{what} name {name!r}: a leading underscore is reserved")


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX)


def temporary_name(identity: bytes) -> str:
    return TEMPORARY_PREFIX + base64.b32encode(identity).decode("ascii").rstrip("=").lower()
