"""`up` and `config`: a broker in the foreground, and the settings that it would have."""
import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from angarium.cli import failure, options, output
from angarium.cli.usage import given_path
from angarium.core.errors import ConfigError
from angarium.core.wire.frames import PORT_DEFAULT

if TYPE_CHECKING:
    from angarium.node.broker import ReadyInfo
    from angarium.node.config import LoadedConfig
    from angarium.node.inspecting import Inspected

# What this user may not read is said where it is read: Typer would call it wrong usage, which it is not.
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings as TOML.", readable=False, path_type=str, callback=given_path
    ),
]
ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Settings as TOML, as --config.", readable=False, path_type=str, callback=given_path
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Directory of the store.", show_default="var", readable=False, path_type=str,
        callback=given_path,
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Where clients connect.", show_default=f"127.0.0.1:{PORT_DEFAULT}"
    ),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the node, for people.")]


def up(data: Data = None, listen: Listen = None, config: ConfigFile = None, name: Name = None) -> int:
    """Run a broker in the foreground.

    Ends with Ctrl-C or SIGTERM. Prints one line with the word `ready` once it accepts connections. A second start on
    the same data takes up where the first left off.
    """
    from angarium.node.main import run_node

    loaded = _load(config, data, listen, name)
    return run_node(loaded.config, _announce, loaded.sources)


def command_as_called() -> str:
    """What a person types to get this very program: its name if the shell finds it by that, else its path."""
    called = sys.argv[0]
    if called.endswith(".py"):
        return f"{sys.executable} -m angarium.cli.main"
    found = shutil.which("angarium")
    is_found = found is not None and Path(found).resolve() == Path(called).resolve()
    return "angarium" if is_found else shlex.quote(called)


def _announce(ready: "ReadyInfo") -> None:
    command = command_as_called()
    option = "" if ready.address == f"angarium://127.0.0.1:{PORT_DEFAULT}" else f" --address {ready.address}"
    recovered = f"  {ready.recovered}\n" if ready.recovered else ""
    text = (
        f"angarium ready on {ready.address}, data in {ready.data}, node {ready.name}\n"
        f"{recovered}"
        "try:\n"
        f"  {command} send orders 'hello'{option}\n"
        f"  {command} receive orders --count 1{option}\n"
        f"  {command} status{option}\n"
    )
    # A broker does not end because nobody reads its greeting.
    with contextlib.suppress(failure.OutputClosed, failure.Failure):
        output.write(text.encode())


def check(
    file: ConfigArgument = None,
    config: ConfigFile = None,
    data: Data = None,
    listen: Listen = None,
    name: Name = None,
    as_json: options.Json = False,
) -> int:
    """Check settings without starting anything. The exit code is 0 if a node would start with them here and now.

    Names and values; whether address and data directory can be had, and are free. A store that is in use is a warning:
    its broker may be the one that is to be started again.
    """
    try:
        chosen = _one_of(file, config)
        found = _inspect(chosen, data, listen, name)
    except ConfigError as error:
        if not as_json:
            raise
        output.write_json({"mistakes": error.mistakes, "warnings": (), "facts": ()})
        return failure.EXIT_FAILED
    if as_json:
        output.write_json({"mistakes": (), "warnings": found.warnings, "facts": found.facts})
        return 0
    for text in found.warnings:
        failure.say(f"warning: {text}")
    failure.say(f"{chosen or 'the settings'}: no mistakes found; {', '.join(found.facts)}")
    return 0


def _one_of(file: Path | None, config: Path | None) -> Path | None:
    if file is not None and config is not None and file != config:
        raise failure.Failure(f"two files are given, {file} and --config {config}: give one", failure.EXIT_USAGE)
    return file or config


def _inspect(file: Path | None, data: Path | None, listen: str | None, name: str | None) -> "Inspected":
    """Raises ConfigError if a node would not start here and now."""
    from angarium.node.inspecting import inspect
    from angarium.node.places import check_places, located, missing_interfaces

    loaded = located(_load(file, data, listen, name).config)
    check_places(loaded)
    found = inspect(loaded)
    found.warnings[:0] = missing_interfaces(loaded)
    return found


def show(
    file: ConfigArgument = None,
    config: ConfigFile = None,
    data: Data = None,
    listen: Listen = None,
    name: Name = None,
    as_json: options.Json = False,
) -> None:
    """Show the settings that a broker would have, as TOML. And where each comes from.

    From file, environment and options, and from what was changed while it ran, which its data directory holds.
    `config get` shows those of brokers that run.
    """
    from angarium.node.config import config_as_list, config_as_toml
    from angarium.node.live_config import settings_at_start

    loaded = settings_at_start(_load(_one_of(file, config), data, listen, name))
    if as_json:
        output.write_json(config_as_list(loaded))
    else:
        output.write(config_as_toml(loaded.config, loaded.sources).encode())


def _load(file: Path | None, data: Path | None, listen: str | None, name: str | None) -> "LoadedConfig":
    from angarium.node.config import NodeSettings, load_with_sources, parse_address

    try:  # what was typed, apart from what stands in a file
        if listen is not None:
            parse_address(listen)
        NodeSettings(name=name or "")
    except ConfigError as error:
        raise failure.Failure(str(error), failure.EXIT_USAGE) from None
    overrides = {"node.data": str(data) if data else None, "node.listen": listen, "node.name": name}
    return load_with_sources(file, overrides, os.environ)
