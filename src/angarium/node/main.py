"""Running a node in the foreground: from configuration to a clean stop."""
import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import uvloop

from angarium.core.errors import ConfigError, Unavailable
from angarium.node.broker import VERSION, Broker, ReadyInfo
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog, event_file
from angarium.node.live_config import LiveConfig, open_live_config
from angarium.node.places import check_free, check_places, foreign_files, is_open_to_others
from angarium.store.durable import DurableStore

_log = logging.getLogger("angarium")
# A thread that comes back from the disk waits at most this long for the interpreter.
_SWITCH_INTERVAL_S = 0.0005


def run_node(
    config: NodeConfig, on_ready: Callable[[ReadyInfo], None], sources: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    if config.cluster.name:
        raise ConfigError(
            f"cluster.name is {config.cluster.name!r}: a broker alone would keep no copies; start this with `node`"
        )
    name = config.node.name or socket.gethostname()
    check_places(config.node)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with logging_to(EventLog(name, config.events), config.node.log_level) as events:
        live = open_live_config(config, sources)
        gc.freeze()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(live, name, events, on_ready))


@contextlib.contextmanager
def logging_to(events: EventLog, level: str) -> Iterator[EventLog]:
    """Whatever is logged in this process is an event, until the end of it."""
    logging.basicConfig(level=level.upper(), handlers=[events])
    try:
        yield events
    finally:
        logging.getLogger().removeHandler(events)
        events.close()


async def _serve(live: LiveConfig, name: str, events: EventLog, on_ready: Callable[[ReadyInfo], None]) -> int:
    config = live.config
    logging.getLogger().setLevel(config.node.log_level.upper())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    check_free(config.node)
    data = Path(config.node.data)
    foreign = foreign_files(data)
    store = await asyncio.to_thread(DurableStore.open, data, config.store)
    events.open(event_file(config))
    if foreign:
        _log.warning("foreign-files: data directory %s was not empty and held no store: it has %s", data, foreign)
    broker = Broker(live, store, name, events)
    loop.set_exception_handler(lambda _, context: broker.fail(context))
    try:
        ready = await broker.start()
    except OSError as error:
        await broker.stop("cannot listen")
        raise Unavailable(f"cannot listen on {config.node.listen}: {error.strerror or error}") from None
    on_ready(ready)
    _log.info("started: %s, version %s, data in %s", ready.address, VERSION, ready.data)
    if is_open_to_others(ready.host):
        _log.warning(
            "open-to-others: whoever reaches %s may read and change everything, there is no authentication yet",
            config.node.listen,
        )
    broker.failure.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if broker.failure.done():
        # A broken invariant: nothing more may be confirmed. What was confirmed is on disk.
        _log.critical("node-failed: %r", broker.failure.exception(), exc_info=broker.failure.exception())
        return 70
    _log.info("stopping: finishing what is under way")
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second Ctrl-C ends at once
    written = await broker.stop("the node is shutting down")
    if not written:
        _log.error("stopped-unwritten: the disk would not take some writes; none of them was confirmed")
    _log.info("stopped: %s", name)
    return 0 if written else 1
