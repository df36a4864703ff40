"""Running a node in the foreground: from configuration to a clean stop."""
import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from angarium.core.errors import Unavailable
from angarium.node.broker import Broker, ReadyInfo
from angarium.node.config import NodeConfig
from angarium.node.places import check_free, check_places, foreign_files, is_open_to_others
from angarium.store.durable import DurableStore

_log = logging.getLogger("angarium")
# A thread that comes back from the disk waits at most this long for the interpreter.
_SWITCH_INTERVAL_S = 0.0005


def run_node(config: NodeConfig, on_ready: Callable[[ReadyInfo], None]) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    logging.basicConfig(
        level=config.node.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, on_ready))


async def _serve(config: NodeConfig, on_ready: Callable[[ReadyInfo], None]) -> int:
    name = config.node.name or socket.gethostname()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    check_places(config.node)
    check_free(config.node)
    foreign = foreign_files(Path(config.node.data))
    store = await asyncio.to_thread(DurableStore.open, Path(config.node.data), config.store)
    if foreign:
        _log.warning("data directory %s was not empty and held no store: it has %s", config.node.data, foreign)
    broker = Broker(config, store, name)
    loop.set_exception_handler(lambda _, context: broker.fail(context))
    try:
        ready = await broker.start()
    except OSError as error:
        await broker.stop("cannot listen")
        raise Unavailable(f"cannot listen on {config.node.listen}: {error.strerror or error}") from None
    on_ready(ready)
    if is_open_to_others(ready.host):
        _log.warning(
            "listening on %s: whoever reaches it may read and change everything, there is no authentication yet",
            config.node.listen,
        )
    broker.failure.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if broker.failure.done():
        # A broken invariant: nothing more may be confirmed. What was confirmed is on disk.
        _log.critical("node-failed: %r", broker.failure.exception(), exc_info=broker.failure.exception())
        return 70
    _log.info("stopping: finishing what is under way")
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second Ctrl-C ends at once
    written = await broker.stop("the node is shutting down")
    if not written:
        _log.error("stopped with writes that the disk would not take; none of them was confirmed")
    return 0 if written else 1
