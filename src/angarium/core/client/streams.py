"""The streams of one session: those that it sends, and those that it reads."""
from angarium.core.client import stream_events
from angarium.core.client.outlet import Outlet
from angarium.core.client.stream_events import StreamRequest
from angarium.core.client.stream_reader import StreamReader
from angarium.core.client.stream_writer import StreamWriter
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire import frames

STREAMS_MAX = 64  # of each kind
StreamFrame = (
    frames.StreamOpened | frames.StreamStored | frames.StreamClosed | frames.StreamData | frames.StreamReadEnd
)


class SessionStreams:
    def __init__(self, session: int) -> None:
        self._session = session
        self._writers: dict[int, StreamWriter] = {}
        self._readers: dict[int, StreamReader] = {}
        self._writer_last = 0  # highest number ever
        self._reader_last = 0

    # -- from our side ---------------------------------------------------------------------------

    def request(self, event: StreamRequest, outlet: Outlet, *, is_open: bool, is_consuming: bool) -> None:
        """`is_open`: the session is; `is_consuming`: so is the consumer whose message is to be read."""
        match event:
            case stream_events.PutFragment(stream=number):
                self._writer(number).put(event)
            case stream_events.UseFragment(reader=number):
                if (reader := self._readers.get(number)) is not None:
                    reader.use()
            case stream_events.OpenStream():
                self._check(event.stream > self._writer_last, "stream", event.stream, len(self._writers))
                self._writer_last = event.stream
                writer = self._writers[event.stream] = StreamWriter(event, outlet)
                if is_open:
                    writer.open()
            case stream_events.OpenReader():
                self._check(event.reader > self._reader_last, "reader", event.reader, len(self._readers))
                self._reader_last = event.reader
                reader = self._readers[event.reader] = StreamReader(event, outlet)
                if is_open and (is_consuming or event.consumer < 0):
                    reader.open()
            case stream_events.CloseStream(stream=number):
                if (gone := self._writers.pop(number, None)) is not None:
                    gone.close()
            case stream_events.CloseReader(reader=number):
                if (ended := self._readers.pop(number, None)) is not None:
                    ended.close()

    def _check(self, is_new: bool, what: str, number: int, count: int) -> None:
        if not is_new:
            raise LocalProtocolError(f"session {self._session}: {what} number {number} was used before")
        if count >= STREAMS_MAX:
            raise LocalProtocolError(f"session {self._session}: more than {STREAMS_MAX} {what}s at a time; end some")

    def _writer(self, number: int) -> StreamWriter:
        try:
            return self._writers[number]
        except KeyError:
            raise LocalProtocolError(f"session {self._session}: stream {number} is not open") from None

    def pump(self) -> None:
        """The link takes more."""
        for writer in self._writers.values():
            writer.pump()

    def session_opened(self) -> None:
        for writer in self._writers.values():
            writer.open()
        for reader in self._readers.values():
            if reader.consumer < 0:
                reader.open()

    def consumer_opened(self, consumer: int) -> None:
        for reader in self._readers.values():
            if reader.consumer == consumer:
                reader.open()

    def consumer_ended(self, consumer: int, outlet: Outlet) -> None:
        """What it held goes to others."""
        for number in [number for number, reader in self._readers.items() if reader.consumer == consumer]:
            self._readers.pop(number).close()
            reason = "the consumer that held the message was closed"
            outlet.tell(stream_events.ReaderEnded(self._session, number, "not-held", reason))

    def disconnected(self) -> None:
        for writer in self._writers.values():
            writer.disconnected()
        for reader in self._readers.values():
            reader.disconnected()

    def ended(self, outlet: Outlet) -> None:
        """The session is over; who waits for something hears of it with the session."""
        for writer in self._writers.values():
            writer.disconnected()
        self._writers.clear()
        self._readers.clear()

    # -- from the broker -------------------------------------------------------------------------

    def receive(self, frame: StreamFrame, payload: bytes, outlet: Outlet) -> None:
        if isinstance(frame, frames.StreamData | frames.StreamReadEnd):
            self._to_reader(frame, payload, outlet)
            return
        writer = self._writers.get(frame.stream)
        if writer is None:
            if frame.stream > self._writer_last:
                raise RemoteProtocolError("unknown-stream", f"session {self._session}: stream {frame.stream} never was")
            return
        match frame:
            case frames.StreamStored():
                writer.on_stored(frame)
            case frames.StreamOpened():
                if lost := writer.on_opened(frame):
                    self._end_writer(writer, "stream-lost", lost, outlet)
            case frames.StreamClosed(code="unknown-stream") if writer.begin_anew():
                pass
            case frames.StreamClosed(code=code, reason=reason):
                self._end_writer(writer, code, reason, outlet)

    def _end_writer(self, writer: StreamWriter, code: str, reason: str, outlet: Outlet) -> None:
        del self._writers[writer.number]
        writer.disconnected()
        outlet.send(self._session, frames.StreamClose(writer.number))  # the number is free again
        outlet.tell(stream_events.StreamEnded(self._session, writer.number, code, reason))

    def _to_reader(self, frame: frames.StreamData | frames.StreamReadEnd, payload: bytes, outlet: Outlet) -> None:
        reader = self._readers.get(frame.reader)
        if reader is None:
            if frame.reader > self._reader_last:
                raise RemoteProtocolError("unknown-reader", f"session {self._session}: reader {frame.reader} never was")
            return
        if isinstance(frame, frames.StreamReadEnd):
            del self._readers[frame.reader]
            outlet.tell(stream_events.ReaderEnded(self._session, frame.reader, frame.code, frame.reason))
        elif not reader.on_data(frame, payload):
            del self._readers[frame.reader]
            reader.close()
            reason = f"fragment {frame.number} arrived damaged"
            outlet.tell(stream_events.ReaderEnded(self._session, frame.reader, "stream-damaged", reason))
        elif frame.last:
            del self._readers[frame.reader]
