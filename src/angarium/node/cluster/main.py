"""Running one node of a cluster in the foreground: from configuration to a clean stop."""
import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from angarium.core.errors import ConfigError, Unavailable, refuse
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.node import ClusterNode, ClusterReady
from angarium.node.cluster.status import VERSION, no_majority
from angarium.node.cluster.stores import open_stores
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog, event_file
from angarium.node.inspecting import data_mistakes
from angarium.node.live_config import LiveConfig
from angarium.node.places import check_places, located
from angarium.node.running import finish, run_in_foreground, stop_on_signals

_log = logging.getLogger("angarium")
_TELL_S = 3.0  # how long a node waits for the others without a word


def run_cluster_node(
    config: NodeConfig, on_ready: Callable[[ClusterReady], None], sources: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    if not config.cluster.name:
        raise ConfigError("cluster.name is empty: say which cluster this node belongs to, or start it with `up`")
    config = located(config)
    check_places(config)
    refuse(data_mistakes(config))
    return run_in_foreground(config, sources, partial(_serve, on_ready))


async def _until_entered(node: ClusterNode, first: list["asyncio.Task[Literal[True]]"]) -> None:
    """Or it is to stop. Whoever watches is told what it waits for."""
    told = ""
    while not (await asyncio.wait(first, timeout=_TELL_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        why = no_majority(node) or "group services have not taken it in yet"
        if why != told:
            _log.warning("waiting: this node is not in the cluster yet: %s", why)
            told = why


async def _serve(on_ready: Callable[[ClusterReady], None], live: LiveConfig, name: str, events: EventLog) -> int:
    config = live.config
    logging.getLogger().setLevel(config.node.log_level.upper())
    stop = stop_on_signals()
    stores = await open_stores(config, name)
    events.open(event_file(config))
    node = ClusterNode(config, name, stores, Machinery(), live=live, events=events)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: node.fail(context))
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
    if node.failure.done() and isinstance(failure := node.failure.exception(), Unavailable):
        raise failure
    return await finish(name, node.failure, node.stop)
