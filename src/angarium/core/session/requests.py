"""The requests of one session: asked one after the other, and none while its client does not read, for answers may be
long.

A request is asked under a number of our own, and its answer is told under the client's: so a late answer to one that
was given up is not taken for that of another.
"""
from collections import deque

from msgspec.structs import replace

from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GlobalIds, counter_of
from angarium.core.names import temporary_name
from angarium.core.session.events import AskNode, ToBus
from angarium.core.session.waiting import WaitingBytes
from angarium.core.wire import frames

# The node itself answers others.
MANAGER_COMMANDS = ("destination.", "subscription.", "transaction.", "dmq.", "log.", "stage.", "trace.")


class Requests:
    def __init__(self, session: bytes, ids: GlobalIds, waiting: WaitingBytes, *, requests_max: int) -> None:
        self._session = session
        self._ids = ids
        self._account = waiting  # of the whole connection
        self._requests_max = requests_max
        self._waiting: deque[tuple[frames.Request, int]] = deque()  # not yet asked, with their bytes
        self._asked: tuple[int, frames.Request] | None = None  # under our number; not yet answered

    @property
    def is_asking_manager(self) -> bool:
        """The message manager owes an answer."""
        return self._asked is not None and self._asked[1].command.startswith(MANAGER_COMMANDS)

    def add(self, frame: frames.Request, size_bytes: int, *, client: bytes) -> None:
        """`client`: the identity of the connection."""
        limit = self._requests_max
        if len(self._waiting) >= limit:
            reason = f"a session has requests_max {limit:,} requests waiting; wait for answers"
            raise RemoteProtocolError("too-many-requests", reason)
        self._account.add(size_bytes)
        arguments = frame.arguments
        if frame.command == "destination.create" and arguments.get("temporary"):
            arguments = arguments | {"name": temporary_name(self._ids.next())}  # only nodes make ids
        self._waiting.append((replace(frame, arguments=arguments, client=client), size_bytes))

    def ask_next(self) -> list[AskNode | ToBus]:
        if self._asked is not None or not self._waiting:
            return []
        request, size_bytes = self._waiting.popleft()
        self._account.remove(size_bytes)
        number = counter_of(self._ids.next())
        self._asked = (number, request)
        posted = replace(request, number=number)
        if request.command.startswith(MANAGER_COMMANDS):
            return [ToBus(self._session, 0, posted)]
        return [AskNode(self._session, posted)]

    def replied(self, frame: frames.Reply) -> frames.Reply | None:
        """As the client knows it; None: nobody waits for it any more."""
        if self._asked is None or self._asked[0] != frame.number:
            return None
        (_, request), self._asked = self._asked, None
        return replace(frame, number=request.number)

    def lose(self) -> frames.Reply | None:
        """The message manager that was asked is gone. What to tell the client, if it was asked anything."""
        if self._asked is None or not self.is_asking_manager:
            return None
        (_, request), self._asked = self._asked, None
        reason = f"{request.command}: the message manager changed before it replied; it may have been done or not"
        return frames.Reply(request.number, "request-lost", reason)

    def clear(self) -> None:
        self._account.remove(sum(size_bytes for _, size_bytes in self._waiting))
        self._waiting.clear()
