"""Where the parts of one connection's machine put their frames and commands, and what they may know of the link.

Everything gathered during one `handle` leaves as one `SendBytes`, before the other commands.
"""
from angarium.core.client.events import Command, SendBytes
from angarium.core.client.flight import Flight
from angarium.core.wire.codec import encode_head
from angarium.core.wire.frames import Frame


class Outlet:
    def __init__(self) -> None:
        self.is_writable = True  # the transport takes more batches
        self.frame_bytes_max = 0  # the broker's, with the next one
        self.body_bytes_max = 0
        self.unconfirmed_bytes_max = 0
        self.flight = Flight()  # of the fragments of streams
        self._buffers: list[bytes] = []
        self._commands: list[Command] = []

    def send(self, session: int, frame: Frame) -> None:
        self._buffers.append(encode_head(session, frame))

    def send_with(self, session: int, frame: Frame, *payload: bytes) -> None:
        """The payload may come in parts: they leave one after the other."""
        self._buffers += (encode_head(session, frame, sum(map(len, payload))), *payload)

    def send_encoded(self, frame: bytes) -> None:
        self._buffers.append(frame)

    def tell(self, command: Command) -> None:
        self._commands.append(command)

    def forget_buffers(self) -> None:
        """The transport they were meant for is gone."""
        self._buffers = []

    def take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        if self._buffers:
            commands.insert(0, SendBytes(self._buffers))
            self._buffers = []
        return commands
