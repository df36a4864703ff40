"""Settings that can be changed while a node runs: which they are, and their checking.

Each of these is looked up where it is used, so that another value counts from then on; what it counts for is said here.
All others are read once, at the start: they size what is allocated, or clients and nodes have agreed on them.
"""
import difflib
from collections.abc import Mapping

from angarium.core.errors import ConfigError, Rejected
from angarium.node.config import NodeConfig, checked_value, with_values

ACQUIRABLE: Mapping[str, str] = {
    "node.log_level": "events from then on",
    "node.unwritten_bytes_max": "from then on",
    "session.connections_max": "new connections",
    "session.sessions_max": "new sessions",
    "session.links_max": "new producers and consumers",
    "destination.resume_grace_s": "sessions that are cut off from then on",
    "destination.destinations_max": "new destinations",
    "destination.watches_max": "new watches",
    "destination.temporaries_max": "new temporary destinations",
    "destination.consumers_max": "new consumers",
    "destination.selector_characters_max": "new selectors",
    "destination.read_bytes_max": "reads from then on",
    "destination.node_messages_max": "at once",
    "destination.node_bytes_max": "at once",
    "destination.node_disk_free_bytes_min": "within a second",
    "destination.node_over_limit": "at once",
    "stream.streams_max": "new streams",
    "stream.open_max": "new streams",
    "stream.stream_bytes_max": "what streams grow from then on",
    "listener.output_bytes_max": "from then on",
    "listener.greeting_s_max": "new connections",
    "listener.closing_s_max": "connections that are closed from then on",
}


def checked(config: NodeConfig, key: str, value: object) -> object:
    """The value as it will be, if nothing speaks against it; raises `Rejected`."""
    if key not in ACQUIRABLE:
        try:
            checked_value(key, value)
        except ConfigError:
            near = difflib.get_close_matches(key, ACQUIRABLE, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "'angarium config get' shows those that can be changed"
            raise Rejected("unknown-setting", f"there is no setting {key!r}; {remedy}") from None
        reason = f"{key} is read when a node starts: change it in the node's file, and start it again"
        raise Rejected("not-acquirable", f"{reason}; 'angarium config get' shows those that can be changed meanwhile")
    try:
        right = checked_value(key, value)
        with_values(config, {key: right})
    except ConfigError as error:
        raise Rejected("bad-setting", str(error).removeprefix("configuration: ")) from None
    return right
