"""`config.get`, `config.set` and `config.unset`: the configuration of running nodes, asked and changed.

Who decides about a change is given: a broker that is alone decides by itself, a node of a cluster asks group services.
Either way the answer is a composite of all nodes: which version each has, and whether it is in its file.
"""
from collections.abc import Awaitable, Callable
from typing import Any

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.node.acquirable import ACQUIRABLE
from angarium.node.administration import Administration
from angarium.node.config import keys, shown_value
from angarium.node.live_config import LiveConfig
from angarium.node.registry import Arguments

SETTLED_S_MAX = 1.5  # how long a node waits for a version before it says which one it has
_KEY = Parameter("key", "table.key, as destination.resume_grace_s", required=True)

GET = CommandSpec("config.get", "settings as they are, and where each comes from", Scope.NODE, (
    Parameter("key", "only this one; a table shows all of it"),
    Parameter("acquirable", "only those that can be changed while a node runs", Kind.FLAG),
))  # fmt: skip
SET = CommandSpec("config.set", "change a setting on all nodes, while they run", Scope.CLUSTER, (
    _KEY, Parameter("value", "its value, also as text", Kind.ANY, required=True),
))  # fmt: skip
UNSET = CommandSpec("config.unset", "take a change back: file, environment or default count again", Scope.CLUSTER, (
    _KEY,
))  # fmt: skip
APPLIED = CommandSpec("config.applied", "which version counts here; waits for one", Scope.NODE, (
    Parameter("version", "that is waited for", Kind.WHOLE), Parameter("key", "whose value is told"),
))  # fmt: skip

Decide = Callable[[str, object | None], Awaitable[int]]  # key and value, None to unset: the version; raises Rejected


class ConfigCommands:
    def __init__(self, live: LiveConfig, administration: Administration, decide: Decide) -> None:
        self._live = live
        self._administration = administration
        self._decide = decide
        registry = administration.registry
        registry.register(GET, self._get)
        registry.register(SET, self._set)
        registry.register(UNSET, self._unset)
        registry.register(APPLIED, self._applied)

    def _get(self, arguments: Arguments) -> dict[str, Any]:
        wanted = arguments.get("key", "")
        found = [key for key in keys(self._live.config) if not wanted or key == wanted or key.startswith(f"{wanted}.")]
        if arguments.get("acquirable"):
            found = [key for key in found if key in ACQUIRABLE]
        if not found:
            raise Rejected("unknown-setting", f"there is no setting {wanted!r}; leave it out to see all")
        return self._version() | {"values": [self._described(key) for key in found]}

    def _described(self, key: str) -> dict[str, Any]:
        value, source = shown_value(self._live.config, key), self._live.source(key)
        return {"key": key, "value": value, "source": source, "acquirable": key in ACQUIRABLE}

    def _version(self) -> dict[str, Any]:
        live = self._live
        problems = [*live.left_out.values(), *([live.failure] if live.failure else [])]
        return {"version": live.version, "saved_version": live.saved_version, "problems": problems}

    async def _set(self, arguments: Arguments) -> dict[str, Any]:
        key = arguments["key"]
        return await self._change(key, self._live.check(key, arguments["value"]))

    async def _unset(self, arguments: Arguments) -> dict[str, Any]:
        key = arguments["key"]
        if key not in ACQUIRABLE:
            raise Rejected("unknown-setting", f"{key!r} cannot be changed online; use {', '.join(ACQUIRABLE)}")
        return await self._change(key, None)

    async def _change(self, key: str, value: object | None) -> dict[str, Any]:
        version = await self._decide(key, value)
        composite = await self._administration.run(APPLIED.name, {"version": version, "key": key})
        return {"key": key, "value": value, "version": version} | composite.described(APPLIED.name)

    async def _applied(self, arguments: Arguments) -> dict[str, Any]:
        await self._live.settled(arguments.get("version", 0), SETTLED_S_MAX)
        key = arguments.get("key", "")
        return self._version() | (self._described(key) if key in ACQUIRABLE else {})
