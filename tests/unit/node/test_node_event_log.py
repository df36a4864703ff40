"""Goal: every event is in the file and on its way to `_LOG`, nobody who logs ever waits, and what is dropped is counted
and told; an event about publishing causes no other."""
import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from angarium.core.errors import ConfigError
from angarium.core.session.events import OwnPublished, PublishOwn
from angarium.node.event_feed import BATCH_EVENTS_MAX, EventFeed
from angarium.node.event_log import LOCAL, Event, EventLog, RotatingFile, Sink, decode_event
from angarium.node.event_settings import EventSettings
from tests.process.process_broker import until, until_async


@pytest.fixture
def log() -> Iterator[EventLog]:
    log = EventLog("n1", EventSettings(queue_max=50, recent_max=10))
    yield log
    log.close()


@pytest.fixture
def logger(log: EventLog) -> logging.Logger:
    logger = logging.Logger("angarium", logging.INFO)
    logger.addHandler(log)
    return logger


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# -- the file ------------------------------------------------------------------------------------------------


def test_an_event_is_a_line_of_json_with_its_code(tmp_path: Path, log: EventLog, logger: logging.Logger) -> None:
    file = tmp_path / "events.jsonl"
    logger.info("started: on %s", "port 5")
    log.open(file)
    logger.warning("disk-blocked: no space: at all")
    logger.error("without a code")
    log.close()
    found = lines(file)
    assert [(event["level"], event["code"], event["text"]) for event in found] == [
        ("info", "started", "on port 5"), ("warning", "disk-blocked", "no space: at all"),
        ("error", "note", "without a code"),
    ]  # fmt: skip
    assert [event["number"] for event in found] == [1, 2, 3] and {event["node"] for event in found} == {"n1"}


def test_files_are_bounded_in_length_and_number(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "e", bytes_max=1_000, files_max=3)
    for number in range(200):
        file.write([f"{number:05} {'x' * 90}"])
    file.close()
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["e", "e.1", "e.2"]
    assert all(path.stat().st_size <= 1_000 for path in found)
    kept = [int(line[:5]) for path in reversed(found) for line in path.read_text().splitlines()]
    assert kept == list(range(kept[0], 200)), "the latest, in order"


def test_it_goes_on_with_the_file_of_the_last_start(tmp_path: Path) -> None:
    for text in ("one", "two"):
        file = RotatingFile(tmp_path / "e", bytes_max=1_000, files_max=3)
        file.write([text])
        file.close()
    assert (tmp_path / "e").read_text() == "one\ntwo\n"


def test_a_file_that_cannot_be_is_an_error(tmp_path: Path, log: EventLog) -> None:
    with pytest.raises(ConfigError, match=r"events\.file"):
        log.open(tmp_path / "nowhere" / "events.jsonl")


def test_whoever_logs_does_not_wait_and_what_is_dropped_is_told(tmp_path: Path, log: EventLog) -> None:
    file = tmp_path / "events.jsonl"
    log.open(file)
    gate = threading.Event()
    assert log._file is not None and log._file_sink is not None
    real = log._file.write

    def stuck(written: list[str]) -> None:
        gate.wait(30)
        real(written)

    log._file_sink._write = stuck
    log.note("info", "first", "takes the thread")
    until(lambda: not log._file_sink._lines, "the thread has it")  # type: ignore[union-attr]
    for number in range(80):
        log.note("info", "event", str(number))
    gate.set()
    until(lambda: "events-dropped" in file.read_text(), "the drops are told")
    found = lines(file)
    (told,) = [event for event in found if event["code"] == "events-dropped"]
    assert str(told["text"]).startswith("30 events were not written to file: 50 were waiting")
    assert len([event for event in found if event["code"] == "event"]) == 50


def test_a_sink_that_fails_goes_on() -> None:
    written: list[str] = []

    def write(given: list[str]) -> None:
        if given == ["bad"]:
            raise OSError(28, "No space left on device")
        written.extend(given)

    sink = Sink("test", write, queue_max=10)
    drained: list[int] = []
    sink.start(lambda _: drained.append(1))
    sink.put("bad")
    until(lambda: len(drained) == 1, "it failed")
    sink.put("good")
    sink.close()
    assert written == ["good"]


# -- the latest ----------------------------------------------------------------------------------------------


def test_the_latest_are_remembered_by_level(log: EventLog) -> None:
    for number in range(20):
        log.note("error" if number % 5 == 0 else "info", "event", str(number))
    assert [event.text for event in log.recent(count=3)] == ["17", "18", "19"]
    assert [event.text for event in log.recent(count=100)] == [str(n) for n in range(10, 20)]
    assert [event.text for event in log.recent(count=100, level="warning")] == ["10", "15"]


# -- publishing ----------------------------------------------------------------------------------------------


class Publisher:
    """Takes what the feed publishes; answers when told."""

    def __init__(self, log: EventLog) -> None:
        self.asked: list[PublishOwn] = []
        self.feed = EventFeed(log, publish=self.asked.append)

    @property
    def texts(self) -> list[str]:
        return [decode_event(message.body).text for asked in self.asked for message in asked.messages]

    def answer(self, code: str = "") -> None:
        self.feed.published(OwnPublished(self.asked[-1].number, code, "since"))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_batch_is_under_way_at_a_time_and_nothing_is_forgotten(log: EventLog) -> None:
    async def publish() -> None:
        log.note("info", "event", "before")
        publisher = Publisher(log)
        await turns()
        for number in range(3):
            log.note("info", "event", str(number))
        await turns()
        assert publisher.texts == ["before"]
        publisher.answer()
        await turns()
        assert publisher.texts == ["before", "0", "1", "2"]
        message = publisher.asked[-1].messages[0]
        assert message.properties == {"node": "n1", "level": "info", "code": "event"}

    asyncio.run(publish())


def test_an_event_about_publishing_causes_no_other(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.Logger("angarium", logging.INFO)
    logger.addHandler(log)
    monkeypatch.setattr("angarium.node.event_feed._log", logger)

    async def publish() -> None:
        publisher = Publisher(log)
        for number in range(3):
            log.note("info", "event", str(number))
            await turns()
            publisher.answer("destination-full")
            await turns()
        logger.info("event: of no interest elsewhere", extra=LOCAL)
        await turns()
        assert publisher.texts == ["0", "1", "2"]

    asyncio.run(publish())
    unpublished = [event for event in log.recent(count=100) if event.code == "events-unpublished"]
    assert len(unpublished) == 1, "told once, here"


def test_that_nobody_listens_is_no_event(log: EventLog) -> None:
    async def publish() -> None:
        publisher = Publisher(log)
        log.note("info", "event", "1")
        await turns()
        publisher.answer("unknown-destination")
        await turns()

    asyncio.run(publish())
    assert [event.code for event in log.recent(count=100)] == ["event"]


def test_what_cannot_be_published_in_time_is_dropped_and_counted(log: EventLog) -> None:
    async def publish() -> None:
        publisher = Publisher(log)
        log.note("info", "event", "first")
        await turns()
        for number in range(60):  # of which 50 may wait
            log.note("info", "event", str(number))
        await turns()
        publisher.answer()
        await turns()
        publisher.answer()
        await turns()
        assert publisher.texts[:51] == ["first", *map(str, range(50))]
        (told,) = [event for event in log.recent(count=100) if event.code == "events-dropped"]
        assert told.text.startswith("10 events were not published: 50 were waiting")
        assert publisher.texts[51:] == [told.text]

    asyncio.run(publish())


def test_batches_are_bounded() -> None:
    log = EventLog("n1", EventSettings())

    async def publish() -> None:
        for number in range(BATCH_EVENTS_MAX + 1):
            log.note("info", "event", str(number))
        publisher = Publisher(log)
        await turns()
        publisher.answer()
        await turns()
        assert [len(asked.messages) for asked in publisher.asked] == [BATCH_EVENTS_MAX, 1]

    asyncio.run(publish())
    log.close()


def test_a_node_without_clients_hands_its_events_on_when_there_is_somebody(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.event_feed.AGAIN_S", 0.01)

    async def hand_on() -> None:
        handed: list[Event] = []
        is_there = False

        def take(events: list[Event]) -> bool:
            if is_there:
                handed.extend(events)
            return is_there

        feed = EventFeed(log, hand_on=take)
        for number in range(3):
            log.note("info", "event", str(number))
        await turns()
        assert handed == []
        is_there = True
        await until_async(lambda: len(handed) == 3, "they are handed on")
        assert [event.text for event in handed] == ["0", "1", "2"], "in order"
        await feed.stop(drain_s_max=1.0)
        log.note("info", "event", "after the end")

    asyncio.run(hand_on())


def test_what_others_hand_on_is_published_and_not_written_here(tmp_path: Path, log: EventLog) -> None:
    log.open(tmp_path / "events.jsonl")

    async def publish() -> None:
        publisher = Publisher(log)
        log.publish([Event(1, "n2", 1, "info", "promoted", "primary")])
        await turns()
        assert publisher.texts == ["primary"]

    asyncio.run(publish())
    log.close()
    assert lines(tmp_path / "events.jsonl") == []


def test_it_may_be_turned_off() -> None:
    log = EventLog("n1", EventSettings(publish=False))
    log.note("info", "event", "x")
    assert log.take(10) == []
    log.close()


def test_a_full_disk_keeps_nobody_from_ending() -> None:
    file = RotatingFile(Path("/dev/full"), bytes_max=1_000, files_max=3)
    with pytest.raises(OSError, match="No space left"):
        file.write(["x"])
    file.close()
