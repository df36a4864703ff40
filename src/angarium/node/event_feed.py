"""Events on their way to `_LOG`: taken from the event log as fast as they can be published, a batch at a time.

A node that clients connect to publishes itself; any other hands its events to one that does. Nobody waits for this, and
what goes wrong here is told in the local log alone.
"""
import asyncio
import contextlib
import logging
from collections.abc import Callable

from angarium.core.names import EVENT_LOG
from angarium.core.session.events import OwnMessage, OwnPublished, PublishOwn
from angarium.core.wire.frames import DestinationKind
from angarium.node.event_log import LOCAL, Event, EventLog, encode_event

BATCH_EVENTS_MAX = 100
AGAIN_S = 1.0  # after which something that could not be handed on is tried again
_NOBODY = "unknown-destination"  # there is no `_LOG`: nobody has ever listened
_log = logging.getLogger("angarium")


class EventFeed:
    """Exactly one of the two: `publish`, answered by `published`; or `hand_on`, False if nobody is there."""

    def __init__(
        self, log: EventLog, *, publish: Callable[[PublishOwn], None] | None = None,
        hand_on: Callable[[list[Event]], bool] | None = None,
    ) -> None:  # fmt: skip
        self._log = log
        self._publish = publish
        self._hand_on = hand_on
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._is_woken = self._is_under_way = self._is_stopped = False
        self._again: asyncio.TimerHandle | None = None
        self._failure = ""  # that was told last
        self._idle = asyncio.Event()
        log.waiting = self._wake
        self._wake()

    def _wake(self) -> None:
        """From any thread."""
        if not self._is_woken and not self._is_stopped:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._next)

    def _next(self) -> None:
        self._is_woken = False
        if self._is_under_way or self._is_stopped:
            return
        if not (events := self._log.take(BATCH_EVENTS_MAX)):
            self._idle.set()
            return
        self._idle.clear()
        if self._hand_on is not None:
            if self._hand_on(events):
                self._wake()
            else:
                self._log.give_back(events)
                self._wait()
            return
        assert self._publish is not None
        self._number += 1
        self._is_under_way = True
        self._publish(PublishOwn(self._number, EVENT_LOG, DestinationKind.TOPIC, [_message(e) for e in events]))

    def _wait(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self._next()

    def published(self, answer: OwnPublished) -> None:
        if answer.number != self._number:
            return
        self._is_under_way = False
        failure = "" if answer.code == _NOBODY else answer.code
        if failure and failure != self._failure:
            _log.warning("events-unpublished: %s: %s", answer.code, answer.reason, extra=LOCAL)
        self._failure = failure
        self._wake()

    async def stop(self, *, drain_s_max: float) -> None:
        """What there is, is still published, unless it takes too long."""
        self._idle.clear()
        self._wake()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), drain_s_max)
        self._is_stopped = True
        self._log.waiting = lambda: None
        if self._again is not None:
            self._again.cancel()


def _message(event: Event) -> OwnMessage:
    return OwnMessage(
        encode_event(event), {"content": "text", "type": "event"},
        {"node": event.node, "level": event.level, "code": event.code},
    )  # fmt: skip
