"""What leaves the machine, in order, and what must be durable before it does.

Whatever a voter says about its term, its vote or its log holds only once that is on disk. `send_durable` keeps a
message until everything written before it is; `send` does not wait.
"""
from collections import deque
from collections.abc import Sequence

from angarium.core.groups.events import Command, Persist, SendMessage
from angarium.core.groups.messages import Message
from angarium.core.storage import Operation

_HELD_MAX = 4_096  # messages that wait for a disk; past it the oldest is dropped, as a network might


class Outbox:
    def __init__(self, me: str) -> None:
        self._me = me
        self.local: deque[Message] = deque()  # for ourselves
        self._commands: list[Command] = []
        self._operations: list[Operation] = []
        self._token = 0  # of the last Persist
        self._durable = 0  # up to this token all is on disk
        self._held: deque[tuple[int, SendMessage]] = deque()

    @property
    def token(self) -> int:
        """When this one is persisted, so is all that was written so far."""
        return self._token + bool(self._operations)

    def is_durable(self, token: int) -> bool:
        return token <= self._durable

    def add(self, *commands: Command) -> None:
        self._commands += commands

    def send(self, to: str, message: Message) -> None:
        if to == self._me:
            self.local.append(message)
        else:
            self._commands.append(SendMessage(to, message))

    def write(self, operations: Sequence[Operation]) -> None:
        self._operations += operations

    def send_durable(self, to: str, message: Message) -> None:
        if self.is_durable(self.token):
            self.send(to, message)
            return
        self._held.append((self.token, SendMessage(to, message)))
        if len(self._held) > _HELD_MAX:
            self._held.popleft()

    def persisted(self, token: int) -> None:
        """All up to this token is on disk."""
        self._durable = max(self._durable, token)
        while self._held and self._held[0][0] <= self._durable:
            command = self._held.popleft()[1]
            self.send(command.to, command.message)

    def take(self) -> list[Command]:
        if self._operations:
            self._token += 1
            self._commands.append(Persist(self._token, self._operations))
            self._operations = []
        commands, self._commands = self._commands, []
        return commands
