"""The streams of one session, as the application sees them: opened here, told here what has become of them."""
import asyncio
from typing import TYPE_CHECKING

from angarium.client.destination import Destination, resolve
from angarium.client.sending import Sending
from angarium.client.stream_reading import IncomingStream
from angarium.client.stream_sending import OutgoingStream
from angarium.core.client import stream_events
from angarium.core.client.gathered import Options
from angarium.core.client.stream_events import StreamNotice, StreamRequest
from angarium.core.errors import AngariumError

if TYPE_CHECKING:
    from angarium.client.session import Session


class StreamDesk:
    def __init__(self, session: "Session") -> None:
        self.session = session.number
        self.loop = session.loop
        self._session = session
        self._writers: dict[int, OutgoingStream] = {}
        self._readers: dict[int, IncomingStream] = {}
        self._destinations: dict[int, Destination] = {}  # of the writers
        self._writer_last = 0
        self._reader_last = 0
        self._closing: set[asyncio.Task[None]] = set()

    def handle(self, event: StreamRequest) -> None:
        if not self._session.driver.is_ended:
            self._session.driver.handle(event)

    # -- sending ---------------------------------------------------------------------------------

    def open_writer(self, destination: Destination) -> OutgoingStream:
        name, kind = resolve(destination)
        number = self._writer_last + 1
        self._session.driver.handle(stream_events.OpenStream(self.session, number, name, kind))
        self._writer_last = number
        writer = self._writers[number] = OutgoingStream(self, number, name)
        self._destinations[number] = destination
        return writer

    def publish(self, writer: OutgoingStream, options: Options) -> Sending:
        sending = self._session.send_alone(self._destinations[writer.number], b"", options)
        # The broker keeps the stream for the message from its publishing on, which may have to wait.
        task = self.loop.create_task(self._close_when_done(writer.number, sending))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return sending

    async def _close_when_done(self, number: int, sending: Sending) -> None:
        await sending.settled()
        self.close_writer(number)

    def close_writer(self, number: int) -> None:
        if self._writers.pop(number, None) is not None:
            del self._destinations[number]
            self.handle(stream_events.CloseStream(self.session, number))

    # -- reading ---------------------------------------------------------------------------------

    def open_reader(self, consumer: int, position: int, size: int, destination: str = "") -> IncomingStream:
        number = self._reader_last + 1
        request = stream_events.OpenReader(self.session, number, consumer, position, destination)
        reader = self._readers[number] = IncomingStream(self, number, size)  # it may hear at once that it has ended
        try:
            self._session.driver.handle(request)
        except AngariumError:
            del self._readers[number]
            raise
        self._reader_last = number
        return reader

    def close_reader(self, number: int) -> None:
        if self._readers.pop(number, None) is not None:
            self.handle(stream_events.CloseReader(self.session, number))

    # -- notifications ---------------------------------------------------------------------------

    def notify(self, command: StreamNotice) -> None:
        if isinstance(command, stream_events.FragmentArrived | stream_events.ReaderEnded):
            self._notify_reader(command)
            return
        writer = self._writers.get(command.stream)
        if writer is None:
            return
        match command:
            case stream_events.StreamAdvanced():
                writer.on_advanced(command)
            case stream_events.StreamReady():
                writer.on_ready(command.identity, command.fragment_bytes)
            case stream_events.StreamEnded():
                del self._writers[command.stream], self._destinations[command.stream]
                writer.on_broker_ended(command.code, command.reason)

    def _notify_reader(self, command: stream_events.FragmentArrived | stream_events.ReaderEnded) -> None:
        reader = self._readers.get(command.reader)
        if reader is None:
            return
        if isinstance(command, stream_events.ReaderEnded):
            del self._readers[command.reader]
            reader.on_broker_ended(command.code, command.reason)
        else:
            if command.is_last:
                del self._readers[command.reader]
            reader.on_fragment(command.payload, is_last=command.is_last)

    def on_ended(self, error: AngariumError) -> None:
        """The session is over."""
        for writer in self._writers.values():
            writer.on_ended(error)
        for reader in self._readers.values():
            reader.on_ended(error)
        self._writers.clear()
        self._readers.clear()
        self._destinations.clear()
