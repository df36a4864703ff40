"""`events.recent`: the latest events of a node, from its memory: also when nobody was subscribed to `_LOG`."""
from typing import Any

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.node.event_log import LEVELS, EventLog
from angarium.node.registry import Arguments, Registry

_COUNT_DEFAULT = 100
RECENT = CommandSpec("events.recent", "the latest events of each node", Scope.NODE, (
    Parameter("count", "at most so many of each node", Kind.WHOLE),
    Parameter("level", "the least severe: 'info', 'warning' or 'error'"),
))  # fmt: skip


def register_events(registry: Registry, log: EventLog) -> None:
    def recent(arguments: Arguments) -> list[dict[str, Any]]:
        level, count = arguments.get("level", "info"), arguments.get("count", _COUNT_DEFAULT)
        if level not in LEVELS:
            raise Rejected("bad-argument", f"level {level!r}: use one of {', '.join(LEVELS)}")
        if count < 1:
            raise Rejected("bad-argument", f"count {count}: at least 1")
        found = log.recent(count=count, level=level)
        return [{name: getattr(event, name) for name in event.__struct_fields__} for event in found]

    registry.register(RECENT, recent)
