"""Administration of a node: what a client asks is done here, by other nodes as well, or by a message manager.

    admin.commands   everything that is registered
    admin.run        one command: by each node, by one, by the cluster, or by a message manager; always a composite
    anything else    done by this node alone, and answered without a composite

A composite is one reply made of those of all nodes that were asked: how many were expected, what each said, and who did
not answer, with the reason. In a broker that is alone it is a composite of one.
"""
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope
from angarium.core.destination.command_specs import SPECS as MANAGER_SPECS
from angarium.core.errors import Rejected
from angarium.core.wire import frames
from angarium.node.registry import Arguments, Registry

_COMMANDS = CommandSpec("admin.commands", "every command, with its parameters", Scope.CLUSTER)
_RUN = CommandSpec(
    "admin.run", "one command, by whom it concerns: a composite reply", Scope.CLUSTER,
    (
        Parameter("command", "what to do", required=True),
        Parameter("arguments", "its arguments", Kind.MAP),
        Parameter("node", "only this node; else all that it concerns"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeReply:
    code: str  # empty: done
    reason: str
    result: Any = None


@dataclass(slots=True)
class Composite:
    """Of all nodes that were asked."""

    replies: dict[str, NodeReply] = field(default_factory=dict)  # by node, in the order of their answers
    missing: dict[str, str] = field(default_factory=dict)  # by node: why it did not answer

    @property
    def expected(self) -> int:
        return len(self.replies) + len(self.missing)

    def described(self, command: str) -> dict[str, Any]:
        """For the wire."""
        return {
            "command": command,
            "expected": self.expected,
            "answered": len(self.replies),
            "replies": [
                {"node": name, "code": reply.code, "reason": reply.reason, "result": reply.result}
                for name, reply in sorted(self.replies.items())
            ],
            "missing": [{"node": name, "reason": reason} for name, reason in sorted(self.missing.items())],
        }


@dataclass(frozen=True, slots=True)
class AdministrationWays:
    """Out of administration, to whom it concerns."""

    nodes: Callable[[], Iterable[str]]  # all that are expected to answer
    ask: Callable[[list[str], str, Arguments], Awaitable[Composite]]  # those nodes
    ask_manager: Callable[[frames.Request], Awaitable[frames.Reply]]


class Administration:
    def __init__(self, name: str, ways: AdministrationWays) -> None:
        self.registry = Registry()
        self._name = name
        self._ways = ways
        self.registry.register(_COMMANDS, lambda _: [spec.described() for spec in self.registry.specs()])
        self.registry.register(_RUN, self._run)
        self.registry.register_managers(MANAGER_SPECS.values())

    async def answer(self, request: frames.Request) -> frames.Reply:
        """To a client; or to a message to `_ADMIN`, which may be one that could not be read."""
        if unread := request.arguments.get("unread"):
            return frames.Reply(request.number, "bad-argument", str(unread))
        reply = await self.local(request.command, request.arguments)
        return frames.Reply(request.number, reply.code, reply.reason, reply.result)

    async def local(self, command: str, arguments: Arguments) -> NodeReply:
        """As this node answers, to a client or to another node."""
        try:
            return NodeReply("", "", await self.registry.run(command, arguments))
        except Rejected as refusal:
            return NodeReply(refusal.code, refusal.reason)

    async def run(self, command: str, arguments: Arguments, node: str = "") -> Composite:
        """Raises `Rejected` if nobody can be asked that."""
        spec = self.registry.check(command, arguments)
        if spec.scope is Scope.NODE:
            return await self._ways.ask(self._chosen(node), command, arguments)
        if node:
            who = "the message manager that has the destination" if spec.scope is Scope.MANAGER else "the whole cluster"
            raise Rejected("bad-argument", f"{command} is answered by {who}: it takes no node")
        if spec.scope is Scope.MANAGER:
            reply = await self._ways.ask_manager(frames.Request(0, command, arguments))
            return Composite({self._name: NodeReply(reply.code, reply.reason, reply.result)})
        return Composite({self._name: await self.local(command, arguments)})

    async def _run(self, arguments: Arguments) -> dict[str, Any]:
        command: str = arguments["command"]
        if command == _RUN.name:
            raise Rejected("bad-argument", f"{command} runs other commands, not itself")
        composite = await self.run(command, arguments.get("arguments", {}), arguments.get("node", ""))
        return composite.described(command)

    def _chosen(self, node: str) -> list[str]:
        known = list(self._ways.nodes())
        if not node:
            return known
        if node not in known:
            raise Rejected("unknown-node", f"there is no node {node[:50]!r}; there are {', '.join(sorted(known))}")
        return [node]

