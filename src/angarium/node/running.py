"""What it takes to run a node in the foreground, alone or of a cluster: a loop, its events, a clean stop."""
import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

import uvloop

from angarium.core.errors import StorageCorrupt, Unavailable
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog
from angarium.node.live_config import LiveConfig, open_live_config

_log = logging.getLogger("angarium")
# A thread that comes back from the disk waits at most this long for the interpreter.
_SWITCH_INTERVAL_S = 0.0005
_EXIT_INVARIANT_BROKEN = 70
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Serve = Callable[[LiveConfig, str, EventLog], Coroutine[None, None, int]]


def run_in_foreground(config: NodeConfig, sources: Mapping[str, str], serve: Serve) -> int:
    """The exit status. `serve` gets the configuration as it counts now, the name of the node, and its events."""
    name = config.node.name or socket.gethostname()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with _logging_to(EventLog(name, config.events), config.node.log_level) as events:
        live = open_live_config(config, sources)
        gc.freeze()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(live, name, events))


@contextlib.contextmanager
def _logging_to(events: EventLog, level: str) -> Iterator[EventLog]:
    """Whatever is logged in this process is an event, until the end of it."""
    logging.basicConfig(level=level.upper(), handlers=[events])
    try:
        yield events
    finally:
        logging.getLogger().removeHandler(events)
        events.close()


def stop_on_signals() -> asyncio.Event:
    """Set by SIGINT and SIGTERM."""
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def finish(name: str, failure: "asyncio.Future[None]", stop: Callable[[], Awaitable[bool]]) -> int:
    """Stop the node, which has been told to, or has failed; the exit status."""
    if failure.done():
        # A broken invariant: nothing more may be confirmed. What was confirmed is on disk.
        error = failure.exception()
        # Where in the code a ruined or failing disk was noticed helps nobody; its message says what to do.
        is_of_the_disk = isinstance(error, StorageCorrupt | Unavailable)
        _log.critical("node-failed: %r", error, exc_info=None if is_of_the_disk else error)
        return _EXIT_INVARIANT_BROKEN
    _log.info("stopping: finishing what is under way")
    for number in _SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)  # a second Ctrl-C ends at once
    written = await stop()
    if not written:
        _log.error("stopped-unwritten: the disk would not take some writes; none of them was confirmed")
    _log.info("stopped: %s", name)
    return 0 if written else 1
