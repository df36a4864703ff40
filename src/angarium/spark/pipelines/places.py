"""Which logs a list of names and globs means, and what they hold now."""
from collections.abc import Iterable, Sequence

from angarium.client import blocking
from angarium.client.log import LogDescription, priority_of
from angarium.core.client.reconnect import ReconnectPolicy
from angarium.core.errors import ConfigError, Rejected
from angarium.core.patterns import NamePattern, is_glob
from angarium.core.wire.frames import LANE_BITS, PatternSyntax
from angarium.core.wire.layout import PRIORITY_MAX
from angarium.spark.offsets import Offsets, to_json

CONNECT_S_MAX = 3.0
_LANES = range(PRIORITY_MAX + 1)


def asked(address: Sequence[str]) -> blocking.Connection:
    """A connection of those who wait for a command to begin; a broker that is there answers at once."""
    policy = ReconnectPolicy(give_up_after_s=CONNECT_S_MAX, tries_s_max=0.0)
    return blocking.connect(tuple(address), name="pipeline", connect_timeout_s=CONNECT_S_MAX, reconnect=policy)


def described(connection: blocking.Connection, wanted: Sequence[str]) -> list[LogDescription]:
    """By name. A name that does not exist is an error; a glob may match nothing yet."""
    if not wanted:
        raise ConfigError("no destinations are given: name some, or use a glob such as 'orders.*'")
    found: dict[str, LogDescription] = {}
    for text in wanted:
        if is_glob(text):
            pattern = NamePattern(text, PatternSyntax.GLOB)
            found |= {log.name: log for log in connection.logs(pattern.prefix) if pattern.matches(log.name)}
        else:
            found[text] = connection.log(text).describe()
    return [found[name] for name in sorted(found)]


def seek(connection: blocking.Connection, name: str, timestamp_ms: int) -> Sequence[int]:
    return connection.log(name).seek(timestamp_ms)


def exists(connection: blocking.Connection, name: str) -> bool:
    try:
        connection.log(name).describe()
    except Rejected as refused:
        if refused.code != "unknown-destination":
            raise
        return False
    return True


def whole_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """With all priorities: one that comes into use only now is left for later."""
    filled = to_json(offsets)
    for name, place in offsets.items():
        for lane in _LANES:
            beginning = lane << LANE_BITS
            filled[name].setdefault(str(priority_of(beginning)), place.positions.get(lane, beginning))
    return filled


def count(low: Offsets, high: Offsets, names: Iterable[str]) -> int:
    """Positions between the two."""
    total = 0
    for name in names:
        if name in low and name in high and low[name].identity == high[name].identity:
            for lane, end in high[name].positions.items():
                total += max(0, end - low[name].positions.get(lane, lane << LANE_BITS))
    return total
