"""Running one node of a cluster in the foreground: from configuration to a clean stop."""
import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import uvloop

from angarium.core.errors import ConfigError, Unavailable
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.node import ClusterNode, ClusterReady
from angarium.node.cluster.status import VERSION, no_majority
from angarium.node.cluster.stores import open_stores
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog, event_file
from angarium.node.live_config import LiveConfig, open_live_config
from angarium.node.main import logging_to

_log = logging.getLogger("angarium")
_SWITCH_INTERVAL_S = 0.0005
_TELL_S = 3.0  # how long a node waits for the others without a word


def run_cluster_node(
    config: NodeConfig, on_ready: Callable[[ClusterReady], None], sources: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    if not config.cluster.name:
        raise ConfigError("cluster.name is empty: say which cluster this node belongs to, or start it with `up`")
    name = config.node.name or socket.gethostname()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with logging_to(EventLog(name, config.events), config.node.log_level) as events:
        live = open_live_config(config, sources)
        gc.freeze()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(live, name, events, on_ready))


async def _until_entered(node: ClusterNode, first: list["asyncio.Task[Literal[True]]"]) -> None:
    """Or it is to stop. Whoever watches is told what it waits for."""
    told = ""
    while not (await asyncio.wait(first, timeout=_TELL_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        why = no_majority(node) or "group services have not taken it in yet"
        if why != told:
            _log.warning("waiting: this node is not in the cluster yet: %s", why)
            told = why


async def _serve(live: LiveConfig, name: str, events: EventLog, on_ready: Callable[[ClusterReady], None]) -> int:
    config = live.config
    logging.getLogger().setLevel(config.node.log_level.upper())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stores = await open_stores(config, name)
    events.open(event_file(config))
    node = ClusterNode(config, name, stores, Machinery(), live=live, events=events)
    loop.set_exception_handler(lambda _, context: node.fail(context))
    node.failure.add_done_callback(lambda _: stop.set())
    try:
        await node.start()
        entering, stopping = asyncio.ensure_future(node.entered.wait()), asyncio.ensure_future(stop.wait())
        await _until_entered(node, [entering, stopping])
        entering.cancel()
        if not stop.is_set():
            ready = await node.open()
            on_ready(ready)
            _log.info("started: %s, version %s, data in %s", ready.address or name, VERSION, config.node.data)
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
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second Ctrl-C ends at once
    written = await node.stop()
    if not written:
        _log.error("stopped-unwritten: the disk would not take some writes; none of them was confirmed")
    _log.info("stopped: %s", name)
    return 0 if written else 1
