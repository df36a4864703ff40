"""`config get`, `config set` and `config unset`: settings of brokers that run."""
from typing import Annotated, Any

import typer

from angarium.admin.commands import Changed, Commands, Composite
from angarium.cli import failure, options, output
from angarium.cli.admin import Node, tell_incomplete

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="As destination.resume_grace_s.", show_default=False,
        autocompletion=options.complete_setting,
    ),
]


def get(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="Only this one, or all of a table.", show_default=False,
            autocompletion=options.complete_setting,
        ),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are read at the start only; else only those that can be set.")
    ] = False,
    node: Node = None,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> int:
    """Show settings as they are in running nodes. And where each comes from."""
    arguments: dict[str, Any] = {"key": key} if key else {}
    if not everything and not key:
        arguments["acquirable"] = True
    composite = options.ask(
        options.Broker(address, wait),
        lambda requests: Commands(requests).run("config.get", arguments, node=node or ""),
    )
    if as_json:
        output.write_json(composite)
    elif rows := _rows(composite):  # none if all have refused, which is told below
        output.write_table(("KEY", "VALUE", "FROM", "NODES"), rows, left=(0, 1, 2, 3))
    return tell_incomplete(composite)


def _rows(composite: Composite) -> list[tuple[str, str, str, str]]:
    """Nodes that have the same value from the same source share a row."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for reply in composite.replies:
        for each in (reply.result or {}).get("values", []):
            value = each["value"] if isinstance(each["value"], str) else output.json_line(each["value"]).decode()
            found.setdefault((each["key"], value, each["source"]), []).append(reply.node)
    answered = sum(not reply.code for reply in composite.replies)
    return [
        (key, value, source, "all" if len(nodes) == answered and answered > 1 else ", ".join(nodes))
        for (key, value, source), nodes in found.items()
    ]


def set_value(
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value.", show_default=False)],
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> int:
    """Change a setting on all nodes, while they run. A node that is away learns it when it is back."""
    return _tell(_change(address, wait, lambda commands: commands.configure(key, value)), as_json)


def unset(
    key: Key,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> int:
    """Take a change back. What file, environment or default say counts again."""
    return _tell(_change(address, wait, lambda commands: commands.unconfigure(key)), as_json)


def _change(address: list[str], wait_s: float, change: Any) -> Changed:
    async def work(requests: options.Requests) -> Changed:
        changed: Changed = await change(Commands(requests))
        return changed

    return options.ask(options.Broker(address, wait_s), work)


def _tell(changed: Changed, as_json: bool) -> int:
    if as_json:
        output.write_json(changed)
    else:
        rows = [(reply.node, *_applied(reply.result or {}, changed)) for reply in changed.replies]
        rows += [(missing.node, "", f"did not answer: {missing.reason}") for missing in changed.missing]
        output.write_table(("NODE", "VERSION", changed.key), rows, left=(0, 2))
    if any(_is_behind(reply.result or {}, changed) for reply in changed.replies):
        failure.say(f"version {changed.version} is decided, and not yet everywhere")
        tell_incomplete(changed)
        return failure.EXIT_FAILED
    return tell_incomplete(changed)


def _applied(result: dict[str, Any], changed: Changed) -> tuple[str, str]:
    notes = [output.json_line(result.get("value")).decode(), *result.get("problems", [])]
    if result.get("version", 0) == result.get("saved_version", 0):
        return str(result.get("version", "")), "; ".join(notes)
    return str(result.get("version", "")), "; ".join([*notes, "not yet in its file"])


def _is_behind(result: dict[str, Any], changed: Changed) -> bool:
    return bool(result) and (result.get("version", 0) < changed.version or bool(result.get("problems")))
