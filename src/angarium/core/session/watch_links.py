"""The watches of one session, on their way between its client and the message manager."""
from msgspec.structs import replace

from angarium.core.errors import RemoteProtocolError
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame

_NUMBER_MAX = (1 << 32) - 1


class WatchLinks:
    def __init__(self, attachment: bytes, *, watches_max: int) -> None:
        self._attachment = attachment
        self._watches_max = watches_max
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, frame: frames.Watch) -> tuple[list[Frame], list[Frame]]:
        """What goes to the message manager, and what to the client."""
        number = frame.watch
        if number in self._open:
            raise RemoteProtocolError("number-in-use", f"watch {number} is open already")
        if not 0 <= number <= _NUMBER_MAX:
            raise RemoteProtocolError("bad-frame", f"watch number {number} is outside 0..{_NUMBER_MAX}")
        if len(self._open) >= self._watches_max:
            reason = f"the session has {len(self._open):,} watches, as many as watches_max allows; close some"
            return [], [frames.WatchClosed(number, "too-many-watches", reason)]
        self._open.add(number)
        return [replace(frame, attachment=self._attachment)], []

    def close(self, frame: frames.WatchClose) -> list[Frame]:
        """One that the broker has closed meanwhile may be closed once more."""
        self._open.discard(frame.watch)
        return [frame]

    def is_for_client(self, frame: frames.WatchFound | frames.WatchClosed) -> bool:
        if frame.attachment != self._attachment or frame.watch not in self._open:
            return False
        if isinstance(frame, frames.WatchClosed):
            self._open.discard(frame.watch)
        return True
