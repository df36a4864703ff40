"""The event log of a node: what happens to it, for people, off the path of messages.

    logging "angarium" ──> EventLog ──┬──> standard error      a thread of its own
                                      ├──> the file            a thread of its own; put aside when it is full
                                      ├──> the latest          in memory, for `angarium log`
                                      └──> to be published     to `_LOG`, by whoever takes it (event_feed.py)

Whoever logs waits for none of these: each has a queue with a maximum, past which the new event is dropped there and
counted, and the count is an event once there is room again. A record with `local=True` (that is, about publishing) is
not published: an event about publishing must not cause another.

An event is a line `code: text`; the code is stable, the text is for people.
"""
import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from io import BufferedWriter
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from angarium.core.errors import ConfigError
from angarium.node.config import NodeConfig
from angarium.node.event_settings import EventSettings

FILE_NAME = "events.jsonl"
LEVELS = ("info", "warning", "error", "critical")
TEXT_CHARACTERS_MAX = 4_000
_CODED = re.compile(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)*): (.*)", re.DOTALL)
_CLOSE_S_MAX = 2.0
LOCAL = {"local": True}  # as `extra` of a record


class Event(msgspec.Struct, frozen=True):
    time_ms: int  # since 1970, UTC, by this node's clock
    node: str
    number: int  # since the node started, from 1
    level: str
    code: str
    text: str


encode_event = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(Event).decode


class Sink:
    """A queue with a maximum that one thread empties."""

    def __init__(self, name: str, write: Callable[[list[str]], None], *, queue_max: int) -> None:
        self.name = name
        self._dropped = 0
        self._write = write
        self._queue_max = queue_max
        self._lines: deque[str] = deque()
        self._ready = threading.Condition()
        self._is_closed = False
        self._drained: Callable[[Sink], None] = lambda _: None
        self._thread = threading.Thread(target=self._run, name=f"events-{name}", daemon=True)

    def start(self, drained: Callable[["Sink"], None]) -> None:
        self._drained = drained
        self._thread.start()

    def put(self, line: str) -> None:
        with self._ready:
            if len(self._lines) >= self._queue_max:
                self._dropped += 1
                return
            self._lines.append(line)
            self._ready.notify()

    def take_dropped(self) -> int:
        """How many there were since this last told any; none while there is no room to tell of them."""
        with self._ready:
            if len(self._lines) >= self._queue_max:
                return 0
            dropped, self._dropped = self._dropped, 0
            return dropped

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._lines and not self._is_closed:
                    self._ready.wait()
                lines = list(self._lines)
                self._lines.clear()
                if not lines:
                    return
            # Nobody could be told but through what has just failed.
            with contextlib.suppress(OSError, ValueError):
                self._write(lines)
            self._drained(self)

    def close(self) -> None:
        """What is queued is still written, unless it takes too long."""
        with self._ready:
            self._is_closed = True
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S_MAX)


class RotatingFile:
    """JSON lines, put aside as `.1`, `.2`, … when it has become too long."""

    def __init__(self, path: Path, *, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._file = _opened(path, "ab")

    def write(self, lines: list[str]) -> None:
        for line in lines:
            data = line.encode() + b"\n"
            if self._file.tell() and self._file.tell() + len(data) > self._bytes_max:
                self._file.flush()
                self._put_aside()
            self._file.write(data)
        self._file.flush()

    def _put_aside(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._files_max))]
        for younger, older in reversed(list(pairwise(names))):
            if younger.exists():
                younger.replace(older)
        self.close()
        self._file = _opened(self._path, "wb")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take is lost, and a node ends all the same
            self._file.close()


def _opened(path: Path, mode: Literal["ab", "wb"]) -> BufferedWriter:
    """As the store's files: not for everybody."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o640))


class EventLog(logging.Handler):
    def __init__(self, node: str, settings: EventSettings) -> None:
        super().__init__()
        self.node = node
        self._settings = settings
        self._number = 0
        self._mutex = threading.Lock()
        self._recent: deque[Event] = deque(maxlen=settings.recent_max)
        self._unwritten: list[str] | None = []  # until the file is open
        self._unpublished: deque[Event] = deque()
        self.unpublished_dropped = 0
        self.waiting: Callable[[], None] = lambda: None  # told, from any thread, that there is something to publish
        self._file: RotatingFile | None = None
        self._file_sink: Sink | None = None
        self._error_sink = Sink("stderr", _to_standard_error, queue_max=settings.queue_max)
        self._error_sink.start(self._report_dropped)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def open(self, path: Path) -> None:
        """From now on also into the file, with what has happened before; raises ConfigError."""
        settings = self._settings
        try:
            file = RotatingFile(path, bytes_max=settings.file_bytes_max, files_max=settings.files_max)
        except OSError as error:
            raise ConfigError(f"events.file {str(path)!r}: {error.strerror or error}; name another file") from None
        sink = Sink("file", file.write, queue_max=settings.queue_max)
        sink.start(self._report_dropped)
        with self._mutex:
            earlier, self._unwritten = self._unwritten or [], None
            self._file, self._file_sink = file, sink
            for line in earlier:
                sink.put(line)

    # -- events in -----------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        found = _CODED.fullmatch(record.getMessage())
        code, text = found.groups() if found else ("note", record.getMessage())
        level = record.levelname.lower()
        is_local: bool = getattr(record, "local", False)
        self.note(level if level in LEVELS else "info", code, text, shown=self.format(record), local=is_local)

    def note(self, level: str, code: str, text: str, *, shown: str = "", local: bool = False) -> None:
        with self._mutex:
            self._number += 1
            event = Event(
                int(time.time() * 1000), self.node, self._number, level, code, text[:TEXT_CHARACTERS_MAX]
            )
            self._recent.append(event)
            line = encode_event(event).decode()
            if self._file_sink is not None:
                self._file_sink.put(line)
            elif self._unwritten is not None and len(self._unwritten) < self._settings.queue_max:
                self._unwritten.append(line)
        if shown:
            self._error_sink.put(shown)
        if not local:
            self.publish([event])

    def _report_dropped(self, sink: Sink) -> None:
        if dropped := sink.take_dropped():
            self._note_dropped(dropped, f"written to {sink.name}")

    def _note_dropped(self, dropped: int, where: str) -> None:
        text = f"{dropped:,} events were not {where}: {self._settings.queue_max:,} were waiting, the most"
        self.note("warning", "events-dropped", text)

    # -- events out ----------------------------------------------------------------------------------------

    def recent(self, *, count: int, level: str = "info") -> list[Event]:
        """The latest, the oldest first."""
        least = LEVELS.index(level)
        with self._mutex:
            found = [event for event in self._recent if LEVELS.index(event.level) >= least]
        return found[-count:]

    def publish(self, events: Iterable[Event]) -> None:
        """Also those of other nodes that have passed them on."""
        if not self._settings.publish:
            return
        with self._mutex:
            for event in events:
                if len(self._unpublished) >= self._settings.queue_max:
                    self.unpublished_dropped += 1
                else:
                    self._unpublished.append(event)
        self.waiting()

    def take(self, count_max: int) -> list[Event]:
        """Events to be published now. A caller that cannot publish them gives them back (`give_back`)."""
        with self._mutex:
            taken = [self._unpublished.popleft() for _ in range(min(count_max, len(self._unpublished)))]
            dropped, self.unpublished_dropped = self.unpublished_dropped, 0
        if dropped:
            self._note_dropped(dropped, "published")
        return taken

    def give_back(self, events: list[Event]) -> None:
        with self._mutex:
            self._unpublished.extendleft(reversed(events))

    def close(self) -> None:
        self._error_sink.close()
        if self._file_sink is not None and self._file is not None:
            self._file_sink.close()
            self._file.close()
        super().close()


def event_file(config: NodeConfig) -> Path:
    return Path(config.events.file) if config.events.file else Path(config.node.data) / FILE_NAME


def _to_standard_error(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
