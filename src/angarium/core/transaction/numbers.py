"""Which transaction each session has committed last at this message manager, and which will never be committed.

A session numbers its transactions 1, 2, 3, ... and has one at a time: the next begins when the one before is answered.
So one number tells which was the last to be committed, and one up to which nothing is committed any more that was not
before: a participant in doubt, or a coordinator that gives up, has asked for it and relies on the answer.

    TRANSACTION  session -> last (8 bytes), when that was (8), refused up to (8; absent: 0)
"""
from angarium.core.storage import Operation, Put, Table, delete_key

SESSIONS_MAX = 100_000  # that are remembered; past it the one that was noted longest ago is forgotten


class CommitNumbers:
    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self.last: dict[bytes, int] = {}  # the longest ago first
        self.unwritten: dict[bytes, int] = {}  # of those, whose write is under way
        self._refused: dict[bytes, int] = {}  # of those, up to which number

    def restore(self, records: dict[bytes, bytes]) -> None:
        found = {session: (int.from_bytes(value[8:16], "big"), value[:8]) for session, value in records.items()}
        for session, (_, number) in sorted(found.items(), key=lambda item: item[1]):
            self.last[session] = int.from_bytes(number, "big")
            if refused := int.from_bytes(records[session][16:], "big"):
                self._refused[session] = refused

    def is_refused(self, session: bytes, number: int) -> bool:
        return number <= self._refused.get(session, 0)

    def commit(self, session: bytes, number: int, now: float) -> list[Operation]:
        self.last.pop(session, None)
        self.last[session] = self.unwritten[session] = number
        return self._noted(session, now)

    def written(self, session: bytes, number: int) -> None:
        if self.unwritten.get(session) == number:
            del self.unwritten[session]

    def refuse(self, session: bytes, number: int, now: float) -> list[Operation]:
        self.last[session] = self.last.pop(session, 0)
        self._refused[session] = max(number, self._refused.get(session, 0))
        return self._noted(session, now)

    def known(self) -> list[tuple[bytes, bytes]]:
        """What is durable, for `learn` of another replica group, by session in order. Nothing of a session whose commit
        is being written: that one is not answered yet, and all before it have been."""
        durable = ((session, number) for session, number in self.last.items() if session not in self.unwritten)
        return sorted((session, number.to_bytes(8, "big")) for session, number in durable)

    def learn(self, records: dict[bytes, bytes], now: float) -> list[Operation]:
        """What another replica group has committed, of which this one takes over a destination: whoever did not hear
        the answer asks here. Numbers only ascend, so nothing is made untrue by that. Those of sessions that were not
        known here count as the oldest, and none of this group's own is forgotten for them."""
        operations: list[Operation] = []
        strangers: dict[bytes, int] = {}
        for session, value in records.items():
            number = int.from_bytes(value[:8], "big")
            if session not in self.last:
                if len(self.last) + len(strangers) < self._sessions_max:
                    strangers[session] = number
            elif number > self.last[session]:
                self.last[session] = number
                operations += self._noted(session, now)
        if strangers:
            self.last = {**strangers, **self.last}
            operations += [operation for session in strangers for operation in self._noted(session, 0.0)]
        return operations

    def forget(self, session: bytes) -> list[Operation]:
        """The session was closed: it has heard all its answers. What is refused stays so, for a commit that is late."""
        if session in self._refused or self.last.pop(session, None) is None:
            return []
        return [delete_key(Table.TRANSACTION, session)]

    def _noted(self, session: bytes, now: float) -> list[Operation]:
        stamp = int(now * 1000) & ((1 << 63) - 1)
        value = self.last[session].to_bytes(8, "big") + stamp.to_bytes(8, "big")
        if session in self._refused:
            value += self._refused[session].to_bytes(8, "big")
        operations: list[Operation] = [Put(Table.TRANSACTION, session, value)]
        if len(self.last) > self._sessions_max:
            oldest = next(iter(self.last))
            del self.last[oldest]
            self._refused.pop(oldest, None)
            operations.append(delete_key(Table.TRANSACTION, oldest))
        return operations
