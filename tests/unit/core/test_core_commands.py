"""Goal: a command that does not exist, and an argument that does not fit, are refused, and the refusal says what would
be right."""
import pytest

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope, check_arguments, unknown_command
from angarium.core.destination.administration import Administration
from angarium.core.destination.command_specs import SPECS
from angarium.core.destination.options import NAMES as OPTION_NAMES
from angarium.core.errors import Rejected
from angarium.core.session.requests import MANAGER_COMMANDS
from tests.unit.core.core_manager import World

SPEC = CommandSpec(
    "a.b", "for a test", Scope.NODE,
    (Parameter("name", "its name", required=True), Parameter("count", "how many", Kind.WHOLE),
     Parameter("flag", "whether", Kind.FLAG), Parameter("ids", "which", Kind.TEXTS),
     Parameter("share", "how much", Kind.NUMBER), Parameter("more", "further", Kind.MAP),
     Parameter("value", "any", Kind.ANY)),
)  # fmt: skip


def test_what_fits_is_taken() -> None:
    check_arguments(SPEC, {"name": "x"})
    whole = {"name": "x", "count": 3, "flag": True, "ids": ["a"], "share": 1, "more": {"a": None}, "value": [1]}
    check_arguments(SPEC, whole)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs 'name': its name"),
        ({"name": 5}, "'name' as a text"),
        ({"name": "x", "count": True}, "'count' as a whole number"),
        ({"name": "x", "count": 1.5}, "'count' as a whole number"),
        ({"name": "x", "flag": "true"}, "'flag' as a true or false"),
        ({"name": "x", "ids": "a"}, "'ids' as a list of texts"),
        ({"name": "x", "share": "1"}, "'share' as a number"),
        ({"name": "x", "more": {1: 2}}, "'more' as a map"),
        ({"name": "x", "nmae": "y"}, "unknown argument 'nmae'; it takes name, count"),
    ],
)
def test_what_does_not_fit_is_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected, match=said) as caught:
        check_arguments(SPEC, arguments)
    assert caught.value.code == "bad-argument"


def test_an_unknown_command_is_answered_with_the_known() -> None:
    assert "did you mean 'node.status'" in unknown_command("node.staus", ["node.status", "x.y"]).reason
    assert "known are node.status, x.y" in unknown_command("quite different", ["x.y", "node.status"]).reason


def test_every_command_of_a_message_manager_is_described_and_finds_its_way() -> None:
    assert set(Administration(World().manager)._commands) == set(SPECS)
    assert all(name.startswith(MANAGER_COMMANDS) for name in SPECS)


def test_every_option_of_a_destination_can_be_given() -> None:
    for command in ("destination.create", "destination.alter"):
        assert set(OPTION_NAMES) <= {parameter.name for parameter in SPECS[command].parameters}


def test_a_message_manager_checks_arguments() -> None:
    world = World()
    reply = world.request("destination.list", perfix="a")
    assert reply.code == "bad-argument" and "after, prefix, count" in reply.reason
    assert world.request("destination.lst").code == "unknown-command"
