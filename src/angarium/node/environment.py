"""Environment variables that begin with ANGARIUM_: every one has a meaning, or is a mistake.

    ANGARIUM_ADDRESS        where the command line finds its broker
    ANGARIUM_TRACEBACK      1: a failure of the command line shows where
    ANGARIUM_TABLE__KEY     a node's setting (node/config.py reads these)

An orchestrator that runs a service named `angarium` adds ANGARIUM_SERVICE_HOST, ANGARIUM_PORT_4560_TCP and the like to
every container: those are passed over.
"""
import difflib
import re
from collections.abc import Iterable

from angarium.core.errors import ConfigError

PREFIX = "ANGARIUM_"
KNOWN = ("ANGARIUM_ADDRESS", "ANGARIUM_TRACEBACK")
_ORCHESTRATED = re.compile(r"ANGARIUM_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)")


def check_names(names: Iterable[str], settings: Iterable[str] = ()) -> None:
    """Raise ConfigError for a name that has no meaning. `settings` are names to suggest; those with two underscores are
    not judged here."""
    for name in names:
        if not name.startswith(PREFIX) or name in KNOWN or "__" in name or _ORCHESTRATED.fullmatch(name):
            continue
        near = difflib.get_close_matches(name, [*KNOWN, *settings], n=1, cutoff=0.8)
        remedy = f"did you mean {near[0]}?" if near else "a setting is ANGARIUM_TABLE__KEY, with two underscores"
        raise ConfigError(f"environment variable {name} means nothing; {remedy}")
