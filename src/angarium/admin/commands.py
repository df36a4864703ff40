"""Any command that a broker, or a cluster, has: listed, and run; the reply is one composite of all nodes' replies."""
from typing import Any

import msgspec

from angarium.admin.model import convert
from angarium.admin.requests import Requests


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    help: str = ""
    kind: str = "text"
    required: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    help: str = ""
    scope: str = ""  # "node": each node answers for itself; "cluster" and "manager": one answer
    parameters: list[Parameter] = []


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    code: str = ""  # empty: done
    reason: str = ""
    result: Any = None


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    reason: str = ""


class Composite(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    expected: int
    answered: int
    replies: list[NodeReply] = []
    missing: list[Missing] = []

    @property
    def is_whole(self) -> bool:
        """Everybody has answered, and nobody has refused."""
        return not self.missing and not any(reply.code for reply in self.replies)


class Changed(Composite, frozen=True, kw_only=True):
    """The answer to `config.set` and `config.unset`: which nodes have applied the version."""

    key: str
    value: Any = None
    version: int = 0


class Commands:
    def __init__(self, connection: Requests) -> None:
        self._connection = connection

    async def all(self) -> list[Command]:
        answer = await self._connection.request("admin.commands", {})
        return convert("admin.commands", answer.result, list[Command])

    async def run(self, command: str, arguments: dict[str, Any] | None = None, *, node: str = "") -> Composite:
        """By every node that it concerns, or by one. Raises `Rejected` if nobody can be asked that."""
        asked = {"command": command, "arguments": arguments or {}, "node": node}
        return convert(command, (await self._connection.request("admin.run", asked)).result, Composite)

    async def configure(self, key: str, value: object) -> Changed:
        """On all nodes, while they run."""
        answer = await self._connection.request("config.set", {"key": key, "value": value})
        return convert("config.set", answer.result, Changed)

    async def unconfigure(self, key: str) -> Changed:
        return convert("config.unset", (await self._connection.request("config.unset", {"key": key})).result, Changed)
