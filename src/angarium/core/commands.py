"""Administrative commands: what each is called, what it does, and which arguments it takes.

Whoever can be administered describes its commands so, beside the code that performs them; a node gathers all of them in
one registry (`node/registry.py`). The description is what is listed, and what arguments are checked against: an unknown
one is refused, and the refusal names those that are known.

Who answers:

    NODE       each node for itself; one may be asked, or all, which gives one composite reply
    CLUSTER    whichever node is asked, once: it is decided by group services, or known to every node
    MANAGER    the message manager that has the destination
"""
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from angarium.core.errors import Rejected

_LISTED_MAX = 60  # commands named in a refusal


class Scope(StrEnum):
    NODE = "node"
    CLUSTER = "cluster"
    MANAGER = "manager"


class Kind(StrEnum):
    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "true or false"
    TEXTS = "list of texts"
    MAP = "map"
    ANY = "anything"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    help: str
    kind: Kind = Kind.TEXT
    required: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec:
    name: str
    help: str
    scope: Scope
    parameters: tuple[Parameter, ...] = ()

    def described(self) -> dict[str, Any]:
        """For the wire."""
        parameters = [
            {"name": p.name, "help": p.help, "kind": p.kind.value, "required": p.required} for p in self.parameters
        ]
        return {"name": self.name, "help": self.help, "scope": self.scope.value, "parameters": parameters}


def check_arguments(spec: CommandSpec, arguments: Mapping[str, Any]) -> None:
    """Raises `Rejected` with `bad-argument`."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    for name, value in arguments.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise Rejected("bad-argument", f"{spec.name}: unknown argument {str(name)[:50]!r}; {takes}")
        if not _fits(known[name].kind, value):
            raise Rejected("bad-argument", f"{spec.name} needs {name!r} as a {known[name].kind}, not {value!r:.50}")
    missing = [p.name for p in spec.parameters if p.required and p.name not in arguments]
    if missing:
        raise Rejected("bad-argument", f"{spec.name} needs {missing[0]!r}: {known[missing[0]].help}")


def _fits(kind: Kind, value: object) -> bool:
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.WHOLE:
            return isinstance(value, int) and not isinstance(value, bool)
        case Kind.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Kind.FLAG:
            return isinstance(value, bool)
        case Kind.TEXTS:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case Kind.MAP:
            return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return True


def unknown_command(name: str, known: Iterable[str]) -> Rejected:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names[:_LISTED_MAX])}"
    return Rejected("unknown-command", f"unknown command {name[:50]!r}; {remedy}")
