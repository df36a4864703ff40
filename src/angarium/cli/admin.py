"""`admin`: any command that is registered, on one node or on all; and how a composite reply is shown."""
from typing import Annotated, Any

import msgspec
import typer

from angarium.admin.commands import Command, Commands, Composite
from angarium.cli import failure, options, output
from angarium.cli.properties import guess
from angarium.cli.usage import not_empty
from angarium.core.malformed import MALFORMED

Node = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NAME", help="Only this node, not all of them.", autocompletion=options.complete_node,
        callback=not_empty,
    ),
]


def admin(
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND", help="As --list shows it.", show_default=False, autocompletion=options.complete_command
        ),
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its arguments; KEY:=JSON for any value.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show all commands, or all about one.")] = False,
    node: Node = None,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> int:
    """Run an administrative command, on every node that it concerns.

    The reply is one composite: what each node said, how many were expected, and which did not answer. The exit code is
    0 if all did what was asked.
    """
    broker = options.Broker(address, wait)
    if listing or not command:
        _list(options.ask(broker, lambda requests: Commands(requests).all()), command, as_json)
        return 0

    async def run(requests: options.Requests) -> Composite:
        commands = Commands(requests)
        specs = {spec.name: spec for spec in await commands.all()}
        given = _arguments(arguments or [], specs.get(command))
        return await commands.run(command, given, node=node or "")

    composite = options.ask(broker, run)
    if as_json:
        output.write_json(composite)
    else:
        for reply in composite.replies:
            if not reply.code:
                output.write(f"{reply.node}\n".encode() if composite.expected > 1 else b"")
                output.write(_shown(reply.result, "  " if composite.expected > 1 else ""))
    return tell_incomplete(composite)


def tell_incomplete(composite: Composite) -> int:
    """What nodes refused, and which did not answer, on standard error; the exit code."""
    for reply in composite.replies:
        if reply.code:
            failure.say(f"node {reply.node}: {reply.code}: {reply.reason}")
    if composite.missing:
        missing = ", ".join(f"{missing.node} ({missing.reason})" for missing in composite.missing)
        failure.say(f"{composite.answered} of {composite.expected} nodes answered; not {missing}")
    if composite.is_whole:
        return 0
    is_usage = not composite.missing and all(reply.code in failure.USAGE_CODES for reply in composite.replies)
    return failure.EXIT_USAGE if is_usage else failure.EXIT_FAILED


def _arguments(given: list[str], spec: Command | None) -> dict[str, Any]:
    """Text where the command wants text: an id of digits is no number. The broker judges what is unknown."""
    kinds = {parameter.name: parameter.kind for parameter in spec.parameters} if spec is not None else {}
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip(":"):
            raise failure.Failure(f"{text!r}: an argument is KEY=VALUE, or KEY:=JSON", failure.EXIT_USAGE)
        if key.endswith(":"):
            try:
                found[key[:-1]] = msgspec.json.decode(value)
            except MALFORMED as error:
                raise failure.Failure(f"{text!r}: not JSON: {error}", failure.EXIT_USAGE) from None
        elif kinds.get(key) in ("text", "anything"):
            found[key] = value
        elif kinds.get(key) == "list of texts":
            found[key] = [part for part in value.split(",") if part]
        else:
            found[key] = guess(value)
    return found


def _list(commands: list[Command], name: str, as_json: bool) -> None:
    if name and not any(command.name == name for command in commands):
        raise failure.Failure(f"unknown command {name!r}; see 'angarium admin --list'", failure.EXIT_USAGE)
    chosen = [command for command in commands if name in ("", command.name)]
    if as_json:
        output.write_json(chosen)
        return
    rows = [(command.name, command.scope, command.help, _signature(command)) for command in chosen]
    output.write_table(("COMMAND", "BY", "DOES", "ARGUMENTS"), rows, left=(0, 1, 2, 3))
    for parameter in chosen[0].parameters if name else ():
        needed = ", required" if parameter.required else ""
        output.write(f"  {parameter.name}  {parameter.help} ({parameter.kind}{needed})\n".encode())


def _signature(command: Command) -> str:
    return " ".join(p.name if p.required else f"[{p.name}]" for p in command.parameters)


def _shown(result: Any, indent: str) -> bytes:
    """One fact a line; what is inside it as JSON."""
    match result:
        case dict():
            lines = [f"{key}  {_value(value)}" for key, value in result.items()]
        case list():
            lines = [_value(item) for item in result]
        case None:
            lines = ["done"]
        case _:
            lines = [_value(result)]
    return "".join(f"{indent}{output.plain(line)}\n" for line in lines).encode()


def _value(value: Any) -> str:
    return value if isinstance(value, str) else output.json_line(value).decode()
