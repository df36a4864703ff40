"""The end of what is staged: the requests `stage.commit` and `stage.abort`.

Both may be repeated: a commit that was done before is answered as if it were done now.
"""
from typing import TYPE_CHECKING

from angarium.core.destination.arguments import done, number, text
from angarium.core.destination.events import Command
from angarium.core.destination.staging import NamedParts, Staging
from angarium.core.errors import Rejected
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.names import QUERY_BYTES_MAX
from angarium.core.wire.frames import Request

if TYPE_CHECKING:
    from angarium.core.destination.destinations import Destinations

COMMANDS = ("stage.commit", "stage.abort")


class StageRequests:
    def __init__(self, manager: "Destinations") -> None:
        self._manager = manager

    def request(self, session: bytes, request: Request, now: float) -> list[Command]:
        staging, query, batch = self._named(request), text(request, "query"), number(request, "batch", 0)
        if not 0 < len(query.encode()) <= QUERY_BYTES_MAX or batch < 0:
            reason = f"{request.command} needs a query of 1 to {QUERY_BYTES_MAX} bytes and a batch from 0 on"
            raise Rejected("bad-argument", f"{reason}, not {query!r:.50} and {batch}")
        parts = self._parts(request)
        if request.command == "stage.abort":
            return staging.abort(query, batch, [part for part, _ in parts], done(session, request, {}))
        return staging.commit(query, batch, parts, done(session, request, {}), now=now)

    def _parts(self, request: Request) -> NamedParts:
        parts, limit = request.arguments["parts"], self._manager.settings.staged_parts_max
        if not isinstance(parts, list) or len(parts) > limit or not all(map(_is_part, parts)):
            reason = f"{request.command} needs 'parts' as a list of at most {limit:,} pairs: the id of a part, a number"
            raise Rejected("bad-argument", reason)
        return [(identity, count) for identity, count in parts]

    def _named(self, request: Request) -> Staging:
        name = text(request, "name")
        if (destination := self._manager.find(name)) is None:
            raise Rejected("unknown-destination", f"there is no destination {name!r}")
        return destination.publishing.staging


def _is_part(part: object) -> bool:
    if not isinstance(part, list) or len(part) != 2:
        return False
    identity, count = part
    return isinstance(identity, bytes) and len(identity) == GLOBAL_ID_BYTES and isinstance(count, int) and count > 0
