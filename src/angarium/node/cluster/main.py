"""Running one node of a cluster in the foreground: from configuration to a clean stop."""
import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvloop

from angarium.core.errors import ConfigError, Unavailable
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.node import ClusterNode, ClusterReady
from angarium.node.cluster.stores import open_stores
from angarium.node.config import NodeConfig

_log = logging.getLogger("angarium")
_SWITCH_INTERVAL_S = 0.0005


def run_cluster_node(config: NodeConfig, on_ready: Callable[[ClusterReady], None]) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    if not config.cluster.name:
        raise ConfigError("cluster.name is empty: say which cluster this node belongs to, or start it with `up`")
    logging.basicConfig(
        level=config.node.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, on_ready))


async def _serve(config: NodeConfig, on_ready: Callable[[ClusterReady], None]) -> int:
    name = config.node.name or socket.gethostname()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    node = ClusterNode(config, name, await open_stores(config, name), Machinery())
    loop.set_exception_handler(lambda _, context: node.fail(context))
    node.failure.add_done_callback(lambda _: stop.set())
    try:
        await node.start()
        entering, stopping = asyncio.ensure_future(node.entered.wait()), asyncio.ensure_future(stop.wait())
        await asyncio.wait([entering, stopping], return_when=asyncio.FIRST_COMPLETED)
        entering.cancel()
        if not stop.is_set():
            on_ready(await node.open())
    except OSError as error:
        raise Unavailable(f"node {name!r} cannot listen: {error.strerror or error}") from None
    await stopping
    if node.failure.done():
        failure = node.failure.exception()
        if isinstance(failure, Unavailable):
            raise failure
        # A broken invariant: nothing more may be confirmed. What was confirmed is on disk.
        _log.critical("node-failed: %r", failure, exc_info=failure)
        return 70
    _log.info("stopping: finishing what is under way")
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second Ctrl-C ends at once
    written = await node.stop()
    if not written:
        _log.error("stopped with writes that the disk would not take; none of them was confirmed")
    return 0 if written else 1
