"""Goal: a mistake in the settings of a cluster is named before anything starts; what all must share has one digest."""
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.errors import ConfigError
from angarium.node.cluster.settings import (
    ClusterSettings,
    bus_address,
    essential_digest,
    group_members,
    voter_addresses,
)
from angarium.node.config import config_as_toml, load_config

GOOD = ClusterSettings(
    name="orders", secret="0123456789abcdef", voters=("a1=h1:1", "a2=h2:1", "a3=[::1]:1"), groups=("a: a1 a2 a3",)
)


def test_a_node_that_is_alone_needs_none_of_it() -> None:
    assert ClusterSettings().name == ""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"secret": "short"}, "cluster.secret"),
        ({"voters": ("a1=h:1", "a2=h:2")}, "one, three or five"),
        ({"voters": ("a1",)}, "NAME=HOST:PORT"),
        ({"voters": ("a1=h:port",)}, "HOST:PORT"),
        ({"voters": ("a1=h:1", "a1=h:2", "a3=h:3")}, "each name once"),
        ({"groups": ()}, "cluster.groups"),
        ({"groups": ("a a1 a2",)}, "GROUP: NODE"),
        ({"groups": ("a: a1 a1",)}, "once"),
        ({"groups": ("a: a1", "a: a2")}, "once"),
        ({"bus": "nowhere"}, "cluster.bus"),
        ({"listen": "4570"}, "cluster.listen"),
    ],
)
def test_mistakes_are_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(GOOD, **change)  # type: ignore[arg-type]


def test_what_is_written_is_understood() -> None:
    assert voter_addresses(GOOD)["a3"] == ("::1", 1)
    assert group_members(GOOD) == {"a": ("a1", "a2", "a3")}
    host, port = bus_address(GOOD)
    assert host.startswith("239.192.") and port == 4571
    assert bus_address(replace(GOOD, bus="239.1.2.3:99")) == ("239.1.2.3", 99)


def test_the_order_of_voters_makes_no_difference() -> None:
    other = replace(GOOD, voters=tuple(reversed(GOOD.voters)))
    assert list(voter_addresses(other).items()) == list(voter_addresses(GOOD).items())
    assert essential_digest(other) == essential_digest(GOOD)


def test_spaces_make_no_difference() -> None:
    other = replace(GOOD, voters=("a1 = h1:1", " a2=h2:1", "a3=[::1]:1 "), groups=("a:  a1 a2  a3",))
    assert essential_digest(other) == essential_digest(GOOD)


def test_the_digest_covers_what_all_must_share_and_nothing_else() -> None:
    digest = essential_digest(GOOD)
    assert digest == essential_digest(replace(GOOD, listen="other:1", client_manager=False))
    changes = ({"name": "bills"}, {"secret": "fedcba9876543210"}, {"groups": ("a: a1 a2",)}, {"voters": ("a1=h:1",)})
    for change in changes:
        assert essential_digest(replace(GOOD, **change)) != digest


def test_lists_can_be_written_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[cluster]\nname = "orders"\nsecret = "0123456789abcdef"\nvoters = ["a1=h1:1"]\ngroups = ["a: a1"]\n'
    )
    loaded = load_config(file, {})
    assert loaded.cluster.groups == ("a: a1",)
    again = tmp_path / "again.toml"
    again.write_text(config_as_toml(loaded))
    assert load_config(again, {}) == loaded
    other = load_config(file, {}, {"ANGARIUM_CLUSTER__GROUPS": "a: a1 a2, b: a1"})
    assert other.cluster.groups == ("a: a1 a2", "b: a1")
    with pytest.raises(ConfigError, match="list of texts"):
        file.write_text('[cluster]\nvoters = "a1=h1:1"\n')
        load_config(file, {})
