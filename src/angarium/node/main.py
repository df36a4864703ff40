"""Running a node in the foreground: from configuration to a clean stop."""
import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from angarium.core.errors import ConfigError, Unavailable, refuse
from angarium.node.broker import VERSION, Broker, ReadyInfo
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog, event_file
from angarium.node.inspecting import data_mistakes
from angarium.node.live_config import LiveConfig
from angarium.node.places import check_free, check_places, foreign_files, is_open_to_others
from angarium.node.running import finish, run_in_foreground, stop_on_signals
from angarium.store.durable import DurableStore

_log = logging.getLogger("angarium")


def run_node(
    config: NodeConfig, on_ready: Callable[[ReadyInfo], None], sources: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Run until SIGINT or SIGTERM; the exit status. Raises AngariumError if the node cannot start."""
    if config.cluster.name:
        raise ConfigError(
            f"cluster.name is {config.cluster.name!r}: a broker alone would keep no copies; start this with `node`"
        )
    check_places(config)
    refuse(data_mistakes(config))
    return run_in_foreground(config, sources, partial(_serve, on_ready))


async def _serve(on_ready: Callable[[ReadyInfo], None], live: LiveConfig, name: str, events: EventLog) -> int:
    config = live.config
    logging.getLogger().setLevel(config.node.log_level.upper())
    stop = stop_on_signals()
    check_free(config.node)
    data = Path(config.node.data)
    foreign = foreign_files(data)
    store = await asyncio.to_thread(DurableStore.open, data, config.store)
    events.open(event_file(config))
    if foreign:
        _log.warning("foreign-files: data directory %s was not empty and held no store: it has %s", data, foreign)
    broker = Broker(live, store, name, events)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broker.fail(context))
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
    return await finish(name, broker.failure, lambda: broker.stop("the node is shutting down"))
