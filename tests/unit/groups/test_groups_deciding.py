"""Goal: the decided state follows from its decisions alone, within its limits, and tells every change once."""
import msgspec
import pytest

from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.groups.changes import (
    NamedGroupChanged,
    ReplicaGroupChanged,
    SettingsChanged,
    ViewChanged,
    changes_between,
)
from angarium.core.groups.configuration import Replica
from angarium.core.groups.deciding import applied
from angarium.core.groups.records import (
    SLOTS,
    Hosted,
    Limits,
    NodeRecord,
    State,
    Voter,
    decode_state,
    encode_state,
)

VOTERS = tuple(Voter(name, name.encode() * 16) for name in "abc")
SMALL = Limits(
    nodes_max=2, addresses_max=1, roles_max=1, hosts_max=1, named_groups_max=1, members_max=1, replica_groups_max=1,
    copies_max=2, exceptions_max=1, settings_max=1, setting_bytes_max=4, settings_bytes_max=4, name_characters_max=8,
)  # fmt: skip


def founded(limits: Limits | None = None) -> State:
    founding = d.Founding(b"cluster", b"essential", limits or Limits())
    return after(State(), d.VotersSet(VOTERS, founding))


def after(state: State, *decisions: d.AnyDecision) -> State:
    for decision in decisions:
        state = applied(state, d.decode_decision(d.encode_decision(decision)), state.index + 1)
    return state


def refused(state: State, decision: d.AnyDecision) -> str:
    with pytest.raises(Rejected) as caught:
        applied(state, decision, state.index + 1)
    return caught.value.code


def node(name: str, start: int = 1, *hosts: Hosted) -> NodeRecord:
    return NodeRecord(name, f"{name}{start}".encode(), (f"{name}:1",), ("mm",), hosts)


def join(name: str, start: int = 1, *hosts: Hosted) -> d.NodeJoined:
    return d.NodeJoined(node(name, start, *hosts))


def names(state: State) -> list[str]:
    return [member.name for member in state.nodes]


def test_nodes_are_listed_in_the_order_in_which_they_joined() -> None:
    state = after(founded(), join("x"), join("y"), join("z"))
    assert names(state) == ["x", "y", "z"]
    assert names(after(state, d.NodesGone((("y", b"y1"),), "failed"), join("y", 2))) == ["x", "z", "y"]


def test_a_new_start_replaces_the_old_one_and_its_memberships() -> None:
    state = after(founded(), join("x"), join("y"), d.NamedJoined("net", "x", b"x1"), d.NamedJoined("net", "y", b"y1"))
    state = after(state, join("x", 2))
    assert names(state) == ["y", "x"]
    assert [member.node for member in state.named["net"]] == ["y"]
    assert refused(state, join("x", 1)) == "replaced"
    assert refused(state, d.NodesGone((("x", b"x1"),), "failed")) == "not-here"
    assert refused(state, d.NamedJoined("net", "x", b"x1")) == "not-here"


def test_the_same_record_again_changes_nothing_and_a_new_one_keeps_the_place() -> None:
    state = after(founded(), join("x"), join("y"))
    again = after(state, join("x"))
    assert again.nodes is state.nodes and again.view_id == state.view_id
    changed = after(state, join("x", 1, Hosted("g", b"s", True)))
    assert names(changed) == ["x", "y"] and changed.view_id == changed.index


def test_named_groups_are_in_order_and_end_with_their_last_member() -> None:
    state = after(founded(), join("x"), join("y"))
    state = after(state, d.NamedJoined("net", "y", b"y1"), d.NamedJoined("net", "x", b"x1", "eth0"))
    assert [(m.node, m.label) for m in state.named["net"]] == [("y", ""), ("x", "eth0")]
    state = after(state, d.NamedLeft("net", "y", b"y1"), d.NodesGone((("x", b"x1"),), "failed"))
    assert state.named == {}


def test_one_past_each_limit_is_refused() -> None:
    state = after(founded(SMALL), join("x"), join("y"))
    assert refused(state, join("z")) == "too-many"
    for fields in ({"addresses": ("1", "2")}, {"roles": ("1", "2")}, {"hosts": (Hosted("g", b"", True),) * 2}):
        assert refused(state, d.NodeJoined(msgspec.structs.replace(node("x"), **fields))) == "too-many"
    assert refused(state, d.NodeJoined(node("n" * 9))) == "too-long"
    state = after(state, d.NamedJoined("net", "x", b"x1"))
    assert refused(state, d.NamedJoined("net", "y", b"y1")) == "too-many"
    assert refused(state, d.NamedJoined("net2", "x", b"x1")) == "too-many"
    assert refused(state, d.NamedJoined("n" * 9, "x", b"x1")) == "too-long"
    assert refused(state, d.GroupConfigured("g", ("x", "y", "z"))) == "bad-members"
    state = after(state, d.GroupConfigured("g", ("x", "y")))
    assert refused(state, d.GroupConfigured("h", ("x",))) == "too-many"
    assert refused(state, d.CopyAdded("g", 0, "z")) == "too-many"
    state = after(state, d.SettingSet("key", b"1234"))
    assert refused(state, d.SettingSet("key2", b"")) == "too-many"
    assert refused(state, d.SettingSet("key", b"12345")) == "too-long"
    assert refused(founded(), d.VotersWanted(("a", "b", "c"), tuple("abcdef"))) == "bad-voters"


def test_slots_are_dealt_once() -> None:
    state = after(founded(), d.GroupConfigured("g", ("x",)), d.GroupConfigured("h", ("y",)), d.SlotsDealt(("g", "h")))
    assert len(state.placement.slots) == SLOTS and state.placement.slots[:3] == (1, 2, 1)
    assert refused(state, d.SlotsDealt(("h",))) == "stale-version"


def test_settings_have_versions() -> None:
    state = after(founded(), d.SettingSet("k", b"1"), d.SettingSet("l", b"2", 1))
    assert state.settings_version == 2
    assert refused(state, d.SettingSet("k", b"3", 1)) == "stale-version"
    assert after(state, d.SettingSet("k", None)).settings_version == 3
    assert after(state, d.SettingSet("none", None)).settings_version == 2


def test_voters_are_wanted_by_compare_and_set() -> None:
    state = after(founded(), d.VotersWanted(("a", "b", "c"), ("a", "b", "d")))
    assert state.voters_wanted == ("a", "b", "d") and state.voters == VOTERS
    assert refused(state, d.VotersWanted(("a", "b", "c"), ("a",))) == "stale-version"
    assert refused(state, d.EssentialSet(b"new", b"other")) == "stale-version"


def test_a_copy_is_added_and_removed_but_not_the_primary() -> None:
    x, y = Replica("x", b"x"), Replica("y", b"y")
    state = after(founded(), d.GroupConfigured("g", ("x", "y")), d.GroupFormed("g", (x, y), b"x1"))
    state = after(state, d.CopyAdded("g", 1, "z"), d.CopyRemoved("g", 2, "y"))
    assert state.groups["g"].members == ("x", "z") and state.groups["g"].in_sync == (x,)
    assert refused(state, d.CopyRemoved("g", 3, "x")) == "is-primary"
    assert refused(state, d.CopyRemoved("h", 3, "x")) == "no-such-group"


def test_the_state_survives_its_encoding() -> None:
    state = after(founded(), join("x", 1, Hosted("g", b"s", True)), d.GroupConfigured("g", ("x",)))
    state = after(state, d.SettingSet("k", b"v"))
    assert decode_state(encode_state(state)) == state


def test_a_jump_tells_the_same_as_the_steps() -> None:
    start = after(founded(), join("x"), join("y"), d.NamedJoined("net", "x", b"x1"), d.SettingSet("k", b"1"))
    end = after(
        start, join("z"), d.NodesGone((("x", b"x1"),), "failed"), d.GroupConfigured("g", ("y",)),
        d.SettingSet("k", None), d.SettingSet("l", b"2"),
    )  # fmt: skip
    view, named, group, settings = changes_between(start, decode_state(encode_state(end)))
    assert isinstance(view, ViewChanged) and isinstance(named, NamedGroupChanged)
    assert isinstance(group, ReplicaGroupChanged) and isinstance(settings, SettingsChanged)
    assert ([n.name for n in view.joined], [n.name for n in view.gone]) == (["z"], ["x"])
    assert named.members == () and [m.node for m in named.gone] == ["x"]
    assert settings.changed == {"l": b"2", "k": None}
    assert changes_between(end, decode_state(encode_state(end))) == []
