"""Goal: a setting comes from where its owner put it last (file, environment, command line), and a wrong one is named
with its source before anything starts.
Method: small files in a temporary directory; every setting of every table drawn at random for the round trip."""
import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from angarium.core.errors import ConfigError
from angarium.core.session.events import SessionSettings
from angarium.core.wire.frames import PORT_DEFAULT
from angarium.node.config import (
    NodeConfig,
    NodeSettings,
    config_as_list,
    config_as_toml,
    keys,
    load_config,
    load_with_sources,
    parse_address,
    shown_value,
)

_SEARCH = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def written(directory: Path, text: str) -> Path:
    path = directory / "node.toml"
    path.write_text(text, encoding="utf-8")
    return path


def message_of(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        load_config(written(directory, text), {})
    return str(refusal.value)


# -- precedence --------------------------------------------------------------------------------------------------


def test_without_anything_the_defaults_hold() -> None:
    assert load_config(None, {}) == load_config(None, {}, {}) == NodeConfig()


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("in_environment", [True, False])
@pytest.mark.parametrize("in_overrides", [True, False])
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, in_file: bool, in_environment: bool, in_overrides: bool
) -> None:
    path = written(tmp_path, '[node]\nname = "file"\nsite = 7\n' if in_file else "")
    environment = {"ANGARIUM_NODE__NAME": "environment"} if in_environment else {}
    config = load_config(path, {"node.name": "command-line" if in_overrides else None}, environment)
    expected = (
        "command-line" if in_overrides else "environment" if in_environment else "file" if in_file else ""
    )
    assert config.node.name == expected
    assert config.node.site == (7 if in_file else 0), "what others do not mention stays"


def test_every_table_and_key_can_be_set_from_the_environment() -> None:
    for section in dataclasses.fields(NodeConfig):
        for setting in dataclasses.fields(getattr(NodeConfig(), section.name)):
            value = getattr(getattr(NodeConfig(), section.name), setting.name)
            if isinstance(value, int | float):
                wanted = not value if isinstance(value, bool) else value * 2
                name = f"ANGARIUM_{section.name}__{setting.name}".upper()
                config = load_config(None, {}, {name: str(wanted)})
                assert getattr(getattr(config, section.name), setting.name) == wanted


def test_other_environment_variables_are_none_of_ours() -> None:
    environment = {"PATH": "/bin", "XANGARIUM_NODE__NAME": "x", "NODE__NAME": "x", "A__B": "c", "ANGARIUM_ADDRESS": "x"}
    orchestrated = {"ANGARIUM_SERVICE_HOST": "x", "ANGARIUM_PORT": "x", "ANGARIUM_PORT_4560_TCP_ADDR": "x"}
    assert load_config(None, {}, environment | orchestrated) == NodeConfig()


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("ANGARIUM_NODE_LISTEN", "ANGARIUM_NODE__LISTEN"),
        ("ANGARIUM_ADRESS", "ANGARIUM_ADDRESS"),
        ("ANGARIUM_FOO", "two underscores"),
    ],
)
def test_a_misspelt_environment_variable_is_refused(name: str, suggested: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, {name: "x"})
    assert name in str(refused.value) and suggested in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ANGARIUM_NODE__SITE", "12", 12),
        ("ANGARIUM_NODE__UNWRITTEN_BYTES_MAX", "67_108_864", 64 << 20),
        ("ANGARIUM_DESTINATION__RESUME_GRACE_S", "2.5", 2.5),
        ("ANGARIUM_DESTINATION__RESUME_GRACE_S", "3", 3.0),
        ("ANGARIUM_STORE__SEGMENT_BYTES", "32768", 32768),
        ("ANGARIUM_NODE__NAME", "12", "12"),
    ],
)
def test_text_from_the_environment_becomes_what_the_setting_is(name: str, text: str, expected: object) -> None:
    table, key = name.removeprefix("ANGARIUM_").lower().split("__")
    value = getattr(getattr(load_config(None, {}, {name: text}), table), key)
    assert value == expected
    assert type(value) is type(expected)


def test_a_whole_number_is_fine_where_a_fraction_is_allowed(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "[destination]\nresume_grace_s = 3\n"), {})
    assert type(config.destination.resume_grace_s) is float


# -- what is wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[node]\nlisen = "x"', ["node.lisen", "did you mean 'listen'"]),
        ("[nod]\nsite = 1", ["unknown table [nod]", "did you mean 'node'"]),
        ("[zzz]\nsite = 1", ["unknown table [zzz]", "known are node, session"]),
        ("site = 1", ["unknown table [site]"]),
        ("node = 1", ["'node' is a table", "[node]"]),
        ("[destination]\nproducer_max = 1", ["producer_max", "producers_max"]),
    ],
)
def test_unknown_keys_are_named_with_the_one_that_was_meant(tmp_path: Path, text: str, parts: list[str]) -> None:
    message = message_of(tmp_path, text)
    assert "node.toml" in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[node]\nsite = '1'", "it has to be a whole number"),
        ("[node]\nsite = true", "node.site is true: it has to be a whole number"),
        ("[node]\nsite = 1.0", "it has to be a whole number"),
        ("[node]\nname = 1", "it has to be a text"),
        ("[destination]\nresume_grace_s = 'x'", "it has to be a number"),
        ("[destination]\nresume_grace_s = -1", "cannot be negative"),
        ("[destination]\nconsumers_max = -1", "cannot be negative"),
        ("[store]\nsegment_bytes = 1", "multiple of"),
        ("[node]\nsite = 65536", "node.site 65536: from 0 to 65,535"),
        ("[node]\nlog_level = 'debug'", "'info', 'warning' or 'error'"),
        ("[node]\nunwritten_bytes_max = 1", "at least 1,048,576"),
        ("[node]\npoll_s_max = 1.5", "node.poll_s_max 1.5: at most 1;"),
        ("[destination]\nnode_over_limit = 'newest'", "'block', 'refuse' or 'oldest'"),
        ("[node]\nlisten = 'x:y'", "HOST:PORT"),
        ("[node]\nlisten = ':1'", "HOST:PORT"),
        ("[node]\nlisten = 'x:65536'", "HOST:PORT"),
        ("[node", "not valid TOML"),
        ("[node]\nsite = 1\nsite = 2", "not valid TOML"),
        # Once: taken, and no answer that names it can be sent.
        ("[destination]\nconsumers_max = 18446744073709551616", "can be at most 4,611,686,018,427,387,904"),
        ("[destination]\nresume_grace_s = 1e300", "can be at most 1,000,000,000"),
    ],
)
def test_wrong_values_are_named_with_their_source(tmp_path: Path, text: str, part: str) -> None:
    message = message_of(tmp_path, text)
    assert "node.toml" in message
    assert part in message


def test_all_mistakes_are_told_at_once_each_with_its_key_and_what_is_valid(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[node]\nsite = 65536\nlisen = 'x'\nlog_level = 'loud'\n[sesion]\nx = 1\n"
        "[store]\nsegment_bytes = 1\nmap_bytes = -1\n"
        "[cluster]\nname = 'c'\nsecret = 'short'\nvoters = 'a'\ngroups = ['g']\n",
    )
    with pytest.raises(ConfigError) as refused:
        load_config(path, {}, {"ANGARIUM_NODE__SITE": "x", "ANGARIUM_STORE__CHUNK_BYTES": "0"})
    assert sorted(mistake.replace(f"{path}: ", "") for mistake in refused.value.mistakes) == [
        "ANGARIUM_NODE__SITE: node.site cannot be 'x': it has to be a whole number",
        "ANGARIUM_STORE__CHUNK_BYTES: store.chunk_bytes is 0: it has to be positive",
        "cluster.groups 'g': use GROUP: NODE NODE …, each group and each node in it once",
        "cluster.secret has 5 characters: at least 16 characters",
        "cluster.voters is 'a': it has to be a list of texts",
        "node.log_level 'loud': use 'info', 'warning' or 'error'",
        "store.map_bytes is -1: it cannot be negative",
        "store.segment_bytes 1: a multiple of 4,096 from 32,768 to 1,073,741,824",
        "unknown key node.lisen; did you mean 'listen'?",
        "unknown table [sesion]; did you mean 'session'?",
    ]
    assert str(refused.value).startswith("10 mistakes:\n    ")


def test_a_mistake_hides_no_other_whose_key_begins_alike(tmp_path: Path) -> None:
    path = written(tmp_path, "[node]\nlis = 'x'\nlisten = 'h:x'\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {}, {})
    told = "\n".join(refused.value.mistakes)
    assert "unknown key node.lis" in told and "node.listen 'h:x'" in told
    path = written(tmp_path, "[listener]\noutput_bytes_high = 'x'\noutput_bytes_low = 2097152\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {}, {})
    assert len(refused.value.mistakes) == 1, "nothing is said of the default of what is refused"


# Once: settings that no subsystem survives are accepted. read_bytes_max = 0 sets the whole backlog aside as
# damaged; heartbeat_s = 0 is a timer that never rests; nan compares false with everything.
@pytest.mark.parametrize(
    "text",
    [
        "[destination]\nread_bytes_max = 0",
        "[session]\nheartbeat_s = 0",
        "[session]\nheartbeat_s = nan",
        "[destination]\nresume_grace_s = nan",
        "[destination]\nresume_grace_s = inf",
        "[listener]\noutput_bytes_low = 2\noutput_bytes_high = 1",
        "[session]\nframe_bytes_max = 0",
    ],
)
def test_settings_that_no_node_survives_are_refused(tmp_path: Path, text: str) -> None:
    assert message_of(tmp_path, text)


# Once: '²' is a digit to str.isdigit, and none to int: ValueError instead of ConfigError.
def test_a_port_of_strange_digits_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse_address("127.0.0.1:²")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ANGARIUM_NODE__SITE", "x"),
        ("ANGARIUM_NODE__SITE", ""),
        ("ANGARIUM_DESTINATION__RESUME_GRACE_S", "soon"),
        ("ANGARIUM_NODE__NOTHING", "x"),
        ("ANGARIUM_NOTHING__SITE", "1"),
        ("ANGARIUM_NODE__SITE", "-1"),
    ],
)
def test_a_wrong_environment_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_config(None, {}, {name: text})


@pytest.mark.parametrize("name", ["a b/c", "a=b", "a:b", "a,b", "-a", "a\n", "x" * 65])
def test_a_node_has_a_name_that_a_cluster_could_call_it_by(name: str) -> None:
    with pytest.raises(ConfigError, match=r"node\.name .*use letters"):
        load_config(None, {"node.name": name}, {})
    assert load_config(None, {"node.name": "mm-1.site_2"}, {}).node.name == "mm-1.site_2"


def test_a_wrong_override_is_named() -> None:
    with pytest.raises(ConfigError, match=r"command line: node\.site"):
        load_config(None, {"node.site": "x"})
    with pytest.raises(ConfigError, match=r"unknown key node\.sit; did you mean 'site'"):
        load_config(None, {"node.sit": 1})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load_config(tmp_path / "missing.toml", {})
    (tmp_path / "latin.toml").write_bytes(b"[node]\nname = '\xe4'\n")
    with pytest.raises(ConfigError, match=r"latin\.toml: not valid TOML: it is no text in UTF-8"):
        load_config(tmp_path / "latin.toml", {})
    with pytest.raises(ConfigError):
        load_config(tmp_path, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:4", ("127.0.0.1", 4)),
        ("localhost", ("localhost", PORT_DEFAULT)),
        ("[::1]:5", ("::1", 5)),
        ("::1", ("::1", PORT_DEFAULT)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("h:65535", ("h", 65_535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@_SEARCH
@given(st.text(max_size=12))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        host, port = parse_address(text)
    except ConfigError:
        return
    assert host
    assert 0 <= port <= 65_535


# -- the round trip ------------------------------------------------------------------------------------------------


def _values(hint: Any) -> st.SearchStrategy[Any]:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    drawn = {
        int: st.integers(1 << 21, 1 << 40),
        float: st.floats(0.001, 1e9),
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        bool: st.booleans(),
        type(None): st.none(),
        tuple[str, ...]: st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12)).map(tuple),
    }
    return st.one_of([drawn[kind] for kind in kinds])


@st.composite
def configs(draw: st.DrawFn) -> NodeConfig:
    """Every setting that is free to be anything of its type."""
    bound = {
        "listen", "site", "log_level", "unwritten_bytes_max", "segment_bytes", "node_over_limit",
        "output_bytes_low", "output_bytes_high", "output_bytes_max", "heartbeat_s", "ack_within_s", "poll_s_max",
        "silence_s_max",
    }  # fmt: skip
    named = {"node", "cluster"}  # not any text; and with a name of the cluster everything else has to make sense
    sections: dict[str, Any] = {}
    for section in dataclasses.fields(NodeConfig):
        default = getattr(NodeConfig(), section.name)
        hints = typing.get_type_hints(type(default))
        kept = bound | {"name"} if section.name in named else bound
        chosen = {name: draw(_values(hint)) for name, hint in hints.items() if name not in kept}
        sections[section.name] = dataclasses.replace(default, **chosen)
    return NodeConfig(**sections)


# Once: control characters in a text are written as they are, and TOML does not allow them.
@_SEARCH
@given(configs())
def test_what_is_shown_loads_back_to_the_same_configuration(tmp_path: Path, config: NodeConfig) -> None:
    shown = config_as_toml(config)
    assert load_config(written(tmp_path, shown), {}) == config


def test_a_shown_configuration_names_every_setting() -> None:
    shown = config_as_toml(NodeConfig())
    for section in dataclasses.fields(NodeConfig):
        assert f"[{section.name}]" in shown
        for setting in dataclasses.fields(getattr(NodeConfig(), section.name)):
            assert setting.name in shown


def test_a_shown_default_loads_back(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, config_as_toml(NodeConfig())), {}) == NodeConfig()
    odd = NodeConfig(node=NodeSettings(data='back\\slash "quoted" ä'), session=SessionSettings(heartbeat_s=1e-07))
    assert load_config(written(tmp_path, config_as_toml(odd)), {}) == odd


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[cluster]\nname = "c"\nsecret = "not for everybody"\nvoters = ["a=h:1"]\ngroups = ["a: a"]\n'
    )
    loaded = load_with_sources(file, {})
    shown = config_as_toml(loaded.config, loaded.sources)
    assert "not for everybody" not in shown and "(not shown: 17 characters)" in shown
    listed = config_as_list(loaded)
    assert "not for everybody" not in str(listed)
    assert [one["key"] for one in listed] == keys(loaded.config)
    assert shown_value(NodeConfig(), "cluster.secret") == ""  # there is none, and that can be seen
