"""Goal: a mistake in the settings of a cluster is named before anything starts; what all must share has one digest."""
import ipaddress
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.errors import ConfigError
from angarium.node.cluster.buses import NO_LINK, Buses
from angarium.node.cluster.settings import (
    ClusterSettings,
    check_client_manager,
    essential_digest,
    group_members,
    named_buses,
    voter_addresses,
)
from angarium.node.config import config_as_toml, load_config

GOOD = ClusterSettings(
    name="orders", secret="0123456789abcdef", voters=("a1=h1:1", "a2=h2:1", "a3=[::1]:1"), groups=("a: a1 a2 a3",)
)
GOOD_B = replace(GOOD, groups=("a: a1 a2 a3", "b: b1 b2 b3"))
ON_TWO = replace(GOOD_B, buses=("red: a1 a2 a3", "blue: b1 b2 b3"))
REVERSED = replace(GOOD_B, buses=("red: cm1", "blue: cm2"))
ALL_ON_ALL = replace(GOOD_B, buses=("red", "blue"))


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
        ({"groups": (), "voters": ()}, "one, three or five"),
        ({"groups": (), "voters": ("a1",)}, "NAME=HOST:PORT"),
        ({"groups": ("a a1 a2",)}, "GROUP: NODE"),
        ({"groups": ("a: a1 a1",)}, "once"),
        ({"groups": ("a/b: a1",)}, "no '/' in the name"),
        ({"groups": ("a: a1", "a: a2")}, "once"),
        ({"bus": "nowhere"}, "cluster.bus"),
        ({"bus": "10.0.0.1:99"}, "multicast group"),
        ({"bus_addresses": ("red=239.1.1.1:1",)}, "name the bus in cluster.buses, too"),
        ({"listen": "4570"}, "cluster.listen"),
    ],
)
def test_mistakes_are_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(GOOD, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"buses": ("red a1",)}, "BUS: NODE NODE"),
        ({"buses": ("red: a1", "red: b1")}, "each bus and each node on it once"),
        ({"buses": ("red: a1 a1 a2 a3",)}, "each bus and each node on it once"),
        ({"buses": tuple(f"bus{n}" for n in range(17))}, "at most 16"),
        ({"bus": "239.1.1.1:1"}, "use bus_addresses"),
        ({"bus_addresses": ("red",)}, "BUS=GROUP:PORT"),
        ({"bus_addresses": ("red=10.0.0.1:1",)}, "multicast group"),
        ({"bus_addresses": ("green=239.1.1.1:1",)}, "name the bus in cluster.buses, too, which has red, blue"),
        ({"bus_addresses": ("red=239.1.1.1:1", "blue=239.1.1.1:1")}, "meet"),
        ({"bus_addresses": ("red=239.1.1.1:1", "blue=239.1.1.3:1")}, "the 2 behind it, one for each replica group"),
        ({"bus_addresses": ("red=239.1.0.1:1", "blue=239.1.255.255:1")}, "meet"),
        ({"bus_interfaces": ("eth1",)}, "BUS=INTERFACE"),
        ({"bus_interfaces": ("green=eth1",)}, "name the bus in cluster.buses, too, which has red, blue"),
        ({"buses": ("red: a1 a2", "blue: a3 b1 b2 b3")}, r"on a1 \(bus red\) and one on a3 \(bus blue\)"),
        ({"buses": ("red: a1 a2", "blue: b1 b2 b3")}, r"one on a3 \(bus red, blue\)"),
    ],
)
def test_mistakes_in_several_buses_are_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(ON_TWO, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seeds": ("cm1",)}, r"cluster\.seeds 'cm1': use NAME=HOST:PORT"),
        ({"seeds": ("cm1=h:1", "cm1=h:2")}, "each name once"),
        ({"named_groups": ("night", "night")}, "each once"),
        ({"named_groups": ("",)}, "1 to 255 characters"),
        ({"named_groups": tuple(f"group{n}" for n in range(101))}, "at most 100"),
    ],
)
def test_mistakes_in_seeds_and_named_groups_are_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(GOOD, **change)  # type: ignore[arg-type]


def test_seeds_and_named_groups_may_differ_from_node_to_node() -> None:
    other = replace(GOOD, seeds=("cm1=h:1",), named_groups=("night",))
    assert essential_digest(other) == essential_digest(GOOD)


def test_several_mistakes_in_buses_are_told_at_once_and_each_once() -> None:
    with pytest.raises(ConfigError) as refused:
        replace(ON_TWO, bus="239.1.1.1:1", bus_addresses=("green=239.1.1.1:1",), bus_interfaces=("eth1",))
    assert [mistake.split()[0] for mistake in refused.value.mistakes] == [
        "cluster.bus", "cluster.bus_addresses", "cluster.bus_interfaces",
    ]  # fmt: skip


def test_a_client_manager_needs_a_bus_in_common_with_every_group() -> None:
    check_client_manager(ON_TWO, "cm1")
    check_client_manager(REVERSED, "cm1")
    check_client_manager(replace(ON_TWO, client_manager=False), "a1")
    with pytest.raises(ConfigError, match=r"node a1 \(bus red\), and replica group 'b' is on bus blue"):
        check_client_manager(ON_TWO, "a1")


def test_without_groups_the_voters_hold_one() -> None:
    bare = replace(GOOD, groups=())
    assert group_members(bare) == {"a": ("a1", "a2", "a3")}
    other = replace(bare, voters=GOOD.voters[::-1])
    assert essential_digest(other) == essential_digest(bare) == essential_digest(GOOD), "in whatever order"


def test_a_bus_has_its_own_address_and_interface() -> None:
    replace(ON_TWO, bus_addresses=("red=239.1.1.1:1", "blue=239.1.1.4:1"))  # red ends at 239.1.1.3
    chosen = named_buses(replace(ON_TWO, listen="127.0.0.1:4570"))
    assert len({bus.address for bus in (*chosen.values(), *named_buses(GOOD).values())}) == 3
    assert {bus.interface for bus in chosen.values()} == {"127.0.0.1"}
    given = replace(
        ON_TWO, bus_addresses=("red = 239.1.1.1:1", "blue=239.1.1.1:2"), bus_interface="eth0",
        bus_interfaces=("blue=eth1",),
    )  # fmt: skip
    assert [(bus.address, bus.interface) for bus in named_buses(given).values()] == [
        ("239.1.1.1:1", "eth0"), ("239.1.1.1:2", "eth1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "node", "on", "to_a", "to_b"),
    [
        (GOOD_B, "a1", "bus", "bus", "bus"),
        (ON_TWO, "a1", "red", "red", None),
        (ON_TWO, "b1", "blue", None, "blue"),
        (ON_TWO, "cm1", "red blue", "red", "blue"),
        (REVERSED, "cm1", "red", "red", "red"),
        (REVERSED, "cm2", "blue", "blue", "blue"),
        (REVERSED, "a1", "red blue", "red", "blue"),
        (ALL_ON_ALL, "a1", "red blue", "red", "blue"),
    ],
)
def test_a_node_sends_on_a_bus_that_it_shares_with_the_group(
    settings: ClusterSettings, node: str, on: str, to_a: str | None, to_b: str | None
) -> None:
    buses = Buses(settings, node)
    assert [bus.name for bus in buses.mine] == on.split()
    links = buses.links()
    for number, (group, wanted) in enumerate((("a", to_a), ("b", to_b)), 1):
        link = buses.link_for(group, number, group_members(settings)[group])
        if wanted is None:
            assert link == NO_LINK
        else:
            assert link in buses.links_of(group) and link in buses.links_on(buses.all[wanted])
            assert links[link].group == str(ipaddress.IPv4Address(buses.all[wanted].group) + number)


def test_what_is_for_a_group_is_heard_once_the_node_is_in_it() -> None:
    buses = Buses(replace(GOOD_B, bus="239.192.0.255:99"), "a1")
    links = buses.links()
    assert {link.group: link.hears for link in links.values()} == {
        "239.192.0.255": True, "239.192.1.0": False, "239.192.1.1": False
    }  # fmt: skip
    assert {link.port for link in links.values()} == {99}
    last = Buses(replace(GOOD_B, bus="239.192.255.255:99"), "a1").links()
    assert [link.group for link in last.values()] == ["239.192.255.255", "239.192.0.0", "239.192.0.1"]


def test_without_multicast_no_bus_is_opened() -> None:
    assert Buses(replace(ON_TWO, multicast=False), "cm1").links() == {}


def test_what_is_written_is_understood() -> None:
    assert voter_addresses(GOOD)["a3"] == ("::1", 1)
    assert group_members(GOOD) == {"a": ("a1", "a2", "a3")}
    (bus,) = named_buses(GOOD).values()
    assert bus.group.startswith("239.192.") and bus.port == 4571
    assert named_buses(replace(GOOD, bus="239.1.2.3:99"))["bus"].address == "239.1.2.3:99"


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
    assert essential_digest(ON_TWO) == essential_digest(REVERSED) == essential_digest(GOOD_B), "buses can be changed"
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
