"""The commands of `angarium`, and nothing else.

Each command is a plain function in the module that its subject has; `failure` turns errors into sentences.
"""
import importlib.metadata
import os
from typing import Annotated

import typer

from angarium.cli import (
    admin,
    administration,
    bench,
    cluster,
    cluster_changes,
    configuration,
    dead,
    destinations,
    failure,
    log,
    node,
    output,
    pipeline,
    pipeline_audit,
    pipeline_replay,
    pipeline_traffic,
    receiving,
    sending,
)
from angarium.node.environment import check_names

app = typer.Typer(
    name="angarium",
    help="Angarium, a message broker: run one, send and receive messages, look after queues and topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topic_app = typer.Typer(help="Follow topics.", no_args_is_help=True)
dead_app = typer.Typer(help="Look after dead messages: what could not be delivered.", no_args_is_help=True)
cluster_app = typer.Typer(help="Run a cluster, and look after its nodes.", no_args_is_help=True)
pipeline_app = typer.Typer(help="Archive, replay, audit and measure messages with Spark.", no_args_is_help=True)
config_app = typer.Typer(help="Check, show and change a broker's settings.", no_args_is_help=True)

app.command()(node.up)
app.command()(cluster.node)
app.command()(sending.send)
app.command()(receiving.receive)
app.command()(administration.ls)
app.command()(destinations.create)
app.command()(destinations.alter)
app.command()(destinations.describe)
app.command()(dead.explain)
app.command()(administration.browse)
app.command()(administration.purge)
app.command()(administration.rm)
app.command()(administration.status)
app.command()(admin.admin)
app.command()(log.log)
app.command()(bench.bench)
topic_app.command()(receiving.tail)
dead_app.command()(dead.ls)
dead_app.command()(dead.show)
dead_app.command()(dead.redrive)
dead_app.command()(dead.discard)
cluster_app.command()(cluster.up)
cluster_app.command()(cluster.status)
cluster_app.command()(cluster_changes.drain)
cluster_app.command(name="move-primary")(cluster_changes.move_primary)
cluster_app.command(name="move-destination")(cluster_changes.move_destination)
cluster_app.command(name="add-copy")(cluster_changes.add_copy)
cluster_app.command(name="remove-copy")(cluster_changes.remove_copy)
cluster_app.command(name="set-voters")(cluster_changes.set_voters)
config_app.command()(node.check)
config_app.command()(node.show)
config_app.command()(configuration.get)
config_app.command(name="set", context_settings={"ignore_unknown_options": True})(configuration.set_value)
config_app.command()(configuration.unset)
pipeline_app.command()(pipeline.archive)
pipeline_app.command()(pipeline_audit.audit)
pipeline_app.command()(pipeline_replay.replay)
pipeline_app.command()(pipeline_traffic.traffic)
app.add_typer(topic_app, name="topic")
app.add_typer(dead_app, name="dmq")
app.add_typer(cluster_app, name="cluster")
app.add_typer(config_app, name="config")
app.add_typer(pipeline_app, name="pipeline")


def run(given: list[str]) -> object:
    """Perform what was typed."""
    # Typer installs it at once, for the shell that it finds itself in, and looks at nothing else.
    if len(given) > 1 and given[0] in ("--install-completion", "--show-completion"):
        text = f"{given[0]} takes no value: it is for the shell that it is called from"
        raise failure.Failure(text, failure.EXIT_USAGE)
    return app(given, prog_name="angarium", standalone_mode=False)


def _version(wanted: bool) -> None:
    if wanted:
        output.write(f"angarium {importlib.metadata.version('angarium')}\n".encode())
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand not in ("up", "config", "node", "cluster"):  # those judge settings, too
        check_names(os.environ)
