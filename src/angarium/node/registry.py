"""The one registry of a node's administrative commands: every subsystem registers its own, with what performs them.

A command that a message manager performs is registered without anything to call: it goes there.
"""
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from angarium.core.commands import CommandSpec, Scope, check_arguments, unknown_command
from angarium.core.errors import LocalProtocolError, Rejected

Arguments = dict[str, Any]
Handler = Callable[[Arguments], Any | Awaitable[Any]]  # the result; raises Rejected


class Registry:
    def __init__(self) -> None:
        self._commands: dict[str, tuple[CommandSpec, Handler | None]] = {}

    def register(self, spec: CommandSpec, handler: Handler) -> None:
        self._add(spec, handler)

    def register_managers(self, specs: Iterable[CommandSpec]) -> None:
        for spec in specs:
            self._add(spec, None)

    def _add(self, spec: CommandSpec, handler: Handler | None) -> None:
        if spec.name in self._commands:
            raise LocalProtocolError(f"command {spec.name!r} is registered twice")
        if (handler is None) != (spec.scope is Scope.MANAGER):
            raise LocalProtocolError(f"command {spec.name!r}: message managers perform those of their scope, no others")
        self._commands[spec.name] = (spec, handler)

    def specs(self) -> list[CommandSpec]:
        return [self._commands[name][0] for name in sorted(self._commands)]

    def find(self, name: str) -> CommandSpec:
        """Raises `Rejected` if there is none."""
        if name not in self._commands:
            raise unknown_command(name, self._commands)
        return self._commands[name][0]

    def check(self, name: str, arguments: Arguments) -> CommandSpec:
        spec = self.find(name)
        check_arguments(spec, arguments)
        return spec

    async def run(self, name: str, arguments: Arguments) -> Any:
        """Here, on this node; raises `Rejected`."""
        self.check(name, arguments)
        handler = self._commands[name][1]
        if handler is None:
            raise Rejected("unknown-command", f"{name} is for a message manager, not for a node; ask with admin.run")
        result = handler(arguments)
        return await result if inspect.isawaitable(result) else result
