"""A node's configuration: TOML file, then environment, then command line, in rising precedence; and on top of them what
was changed while the node ran (`acquired.py`).

The file has one table for each subsystem, the fields of its settings dataclass as keys:

    [node]
    name = "alpha"
    listen = "127.0.0.1:4560"

    [destination]
    resume_grace_s = 2.0

An environment variable is ANGARIUM_, the table, two underscores and the key: ANGARIUM_NODE__LISTEN. Unknown keys,
unknown variables that begin so, and values of the wrong type are errors.
"""
import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from angarium.core.destination.events import DestinationSettings
from angarium.core.errors import ConfigError, refuse
from angarium.core.ids import SITE_MAX
from angarium.core.replication.events import ReplicationSettings
from angarium.core.session.events import SessionSettings
from angarium.core.stream.events import StreamSettings
from angarium.core.wire.frames import PORT_DEFAULT
from angarium.node.cluster.settings import ClusterSettings
from angarium.node.environment import PREFIX, check_names
from angarium.node.event_settings import EventSettings
from angarium.runtime.disk import DiskSettings
from angarium.runtime.listener import ListenerSettings
from angarium.store.settings import StoreSettings

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}  # as TOML's users know them
_MAY_BE_ZERO = (
    "node.site", "node.poll_s_max", "destination.resume_grace_s",
    "disk.patience_s", "listener.output_bytes_low", "store.ballast_bytes",
    "stream.free_bytes_min", "destination.node_messages_max", "destination.node_bytes_max",
    "destination.node_disk_free_bytes_min", "stream.unfinished_keep_s",
)  # fmt: skip
POLL_S_LIMIT = 1.0
_WHOLE_MAX = 1 << 62  # what counts and bytes can be added to, and still be sent to whoever asks for them
_SECONDS_MAX = 1_000_000_000  # 31 years; timers know no eternity
# One that a command line, and the settings of a cluster (NAME=HOST:PORT, GROUP: NODE NODE), can name as well.
_NODE_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    # What people call this node, in logs and `status`. Empty: the host's name.
    name: str = ""
    # Where clients connect. Loopback by default: opening it to a network is a decision. Port 0 lets the system choose.
    listen: str = f"127.0.0.1:{PORT_DEFAULT}"
    # Where the store lives. One node at a time may use it.
    data: str = "var"
    # Part of every id made here; give sites that exchange messages different numbers.
    site: int = 0
    # Unwritten bytes in the whole node at which connections that publish are no longer read from.
    unwritten_bytes_max: int = 64 << 20
    # While messages come one by one, each sooner after the last than this, the node waits for the next one awake: on a
    # processor that would have slept, which it gives to whoever else wants it. 0: it always sleeps. It does so anyway
    # with less than two processors to itself, in real time, and as a node of a cluster.
    poll_s_max: float = 0.002
    # Least severe events that are written to the log: "info", "warning" or "error".
    log_level: str = "info"

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if self.name and not _NODE_NAME.fullmatch(self.name):
            yield f"node.name {self.name!r}: use letters, digits, '-', '_' and '.', up to 64, no '-' at the start"
        try:
            parse_address(self.listen)
        except ConfigError as error:
            yield str(error)
        if not 0 <= self.site <= SITE_MAX:
            yield f"node.site {self.site}: from 0 to {SITE_MAX:,}"
        if self.log_level not in ("info", "warning", "error"):
            yield f"node.log_level {self.log_level!r}: use 'info', 'warning' or 'error'"
        if self.poll_s_max > POLL_S_LIMIT:
            yield f"node.poll_s_max {self.poll_s_max:g}: at most {POLL_S_LIMIT:g}; it is a processor's time"
        if self.unwritten_bytes_max < 1 << 20:
            yield f"node.unwritten_bytes_max {self.unwritten_bytes_max:,}: at least {1 << 20:,}"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    node: NodeSettings = field(default_factory=NodeSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    destination: DestinationSettings = field(default_factory=DestinationSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    disk: DiskSettings = field(default_factory=DiskSettings)
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    events: EventSettings = field(default_factory=EventSettings)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    config: NodeConfig
    sources: Mapping[str, str]  # by "table.key": where a value that is no default comes from


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `host` or `[v6]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or (host and ":" in host and not host.startswith("[")):
        host, port = text, str(PORT_DEFAULT)
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535 or not host:
        raise ConfigError(f"node.listen {text!r}: use HOST:PORT, for example 127.0.0.1:{PORT_DEFAULT}")
    return host.strip("[]"), int(port)


def load_config(
    path: Path | None, overrides: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> NodeConfig:
    """`overrides` are the command line's, by "table.key"; None means not given."""
    return load_with_sources(path, overrides, environment).config


def load_with_sources(
    path: Path | None, overrides: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Raises ConfigError with all mistakes that there are, each with where it was made."""
    gathered = _Gathered()
    if path is not None:
        for table, entries in _read_file(path).items():
            gathered.add_table(table, entries, str(path), f"file {path}")
    try:
        check_names(environment or {}, _variables())
    except ConfigError as error:
        gathered.mistakes += error.mistakes
    for name, text in (environment or {}).items():
        table, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and separator:
            gathered.add(table, key, text, name, f"environment {name}", is_text=True)
    for dotted, value in overrides.items():
        if value is not None:
            table, _, key = dotted.partition(".")
            gathered.add(table, key, value, "command line", "option")
    return LoadedConfig(gathered.config(str(path) if path else ""), gathered.sources)


class _Gathered:
    """What was given so far, and what is wrong with it."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, str] = {}
        self.mistakes: list[str] = []
        self._wrong: set[str] = set()  # keys whose mistake is told

    def add_table(self, table: str, entries: object, source: str, shown: str) -> None:
        try:
            _fields(table, source)
            if not isinstance(entries, Mapping):
                raise ConfigError(f"{source}: {table!r} is a table: write [{table}]")
        except ConfigError as error:
            self.mistakes += error.mistakes
            return
        for key, value in entries.items():
            self.add(table, key, value, source, shown)

    def add(self, table: str, key: str, value: object, source: str, shown: str, *, is_text: bool = False) -> None:
        try:
            fields = _fields(table, source)
            if key not in fields:
                raise ConfigError(f"{source}: unknown key {table}.{key}{_suggest(key, list(fields))}")
            given = _from_text(table, key, str(value), source) if is_text else value
            right = _checked(f"{table}.{key}", given, fields[key], source)
        except ConfigError as error:
            self.mistakes += error.mistakes
            self._wrong.add(f"{table}.{key}")
            return
        self.values.setdefault(table, {})[key] = right
        self.sources[f"{table}.{key}"] = shown

    def config(self, path: str) -> NodeConfig:
        sections: dict[str, Any] = {}
        for section in dataclasses.fields(NodeConfig):
            assert isinstance(section.default_factory, type)
            try:
                sections[section.name] = section.default_factory(**self.values.get(section.name, {}))
            except ConfigError as error:
                # What is said of a value that was refused is said of its default.
                told = [mistake for mistake in error.mistakes if self._wrong.isdisjoint(_words(mistake))]
                self.mistakes += [f"{path}: {mistake}" if path else mistake for mistake in told]
        refuse(self.mistakes)
        return NodeConfig(**sections)


def _words(mistake: str) -> list[str]:
    return [word.rstrip(",:;") for word in mistake.split()]


def with_values(config: NodeConfig, values: Mapping[str, object]) -> NodeConfig:
    """The configuration with other values, by "table.key"; raises ConfigError."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    changed = {table: dataclasses.replace(getattr(config, table), **entries) for table, entries in tables.items()}
    return dataclasses.replace(config, **changed)


def checked_value(key: str, value: object) -> object:
    """A value for "table.key" of the right type, from text as well; raises ConfigError."""
    table, _, name = key.partition(".")
    fields = _fields(table, "configuration")
    if name not in fields:
        raise ConfigError(f"unknown key {key}{_suggest(name, list(fields))}")
    if isinstance(value, str):
        value = _from_text(table, name, value, "configuration")
    return _checked(key, value, fields[name], "configuration")


def value_of(config: NodeConfig, key: str) -> object:
    table, _, name = key.partition(".")
    return getattr(getattr(config, table), name)


def keys(config: NodeConfig) -> list[str]:
    """Every setting there is, as "table.key"."""
    return [
        f"{section.name}.{setting.name}"
        for section in dataclasses.fields(config)
        for setting in dataclasses.fields(getattr(config, section.name))
    ]


def shown_value(config: NodeConfig, key: str) -> object:
    """What people see of a secret is that it is there."""
    value = value_of(config, key)
    if key in _SECRETS and isinstance(value, str) and value:
        return f"(not shown: {len(value):,} characters)"
    return value


_SECRETS = ("cluster.secret",)


def config_as_list(loaded: LoadedConfig) -> list[dict[str, object]]:
    """Every setting as people may see it, for programs: `config show --json`."""
    return [
        {"key": key, "value": shown_value(loaded.config, key), "source": loaded.sources.get(key, "default")}
        for key in keys(loaded.config)
    ]


def config_as_toml(config: NodeConfig, sources: Mapping[str, str] | None = None) -> str:
    """Every setting with its value, and where it comes from: what `config show` prints, and a file that loads to the
    same configuration."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        for setting in dataclasses.fields(getattr(config, section.name)):
            key = f"{section.name}.{setting.name}"
            if sources is None:
                lines.append(toml_line(setting.name, value_of(config, key)))
            else:
                line = toml_line(setting.name, shown_value(config, key))
                lines.append(f"{line:<40}  # {sources.get(key, 'default')}")
        lines.append("")
    return "\n".join(lines)


def toml_line(key: str, value: object) -> str:
    if value is None:
        return f"# {key}: chosen by the node when not set"
    if isinstance(value, bool):
        return f"{key} = {str(value).lower()}"
    if isinstance(value, str | tuple):
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes JSON's escapes
        return f"{key} = {text}"
    return f"{key} = {value}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid TOML: it is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _fields(table: str, source: str) -> dict[str, Any]:
    sections = {f.name: f.default_factory for f in dataclasses.fields(NodeConfig)}
    factory = sections.get(table)
    if factory is None:
        raise ConfigError(f"{source}: unknown table [{table}]{_suggest(table, list(sections))}")
    assert isinstance(factory, type)
    return typing.get_type_hints(factory)


def _variables() -> list[str]:
    """The environment variables of all settings."""
    sections = [f.name for f in dataclasses.fields(NodeConfig)]
    return [f"{PREFIX}{table}__{key}".upper() for table in sections for key in _fields(table, "")]


def _suggest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _checked(name: str, value: object, hint: Any, source: str) -> object:
    if hint == tuple[str, ...]:
        return _checked_texts(name, value, source)
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(value) is int and float in allowed and int not in allowed:
        value = float(value)
    if not any(type(value) is kind for kind in allowed):
        raise ConfigError(f"{source}: {name} is {_as_written(value)}: it has to be {_named(allowed)}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            raise ConfigError(f"{source}: {name} is {value}: it cannot be negative")
        if not math.isfinite(value):
            raise ConfigError(f"{source}: {name} is {value}: it has to be a finite number")
        if value == 0 and name not in _MAY_BE_ZERO:
            raise ConfigError(f"{source}: {name} is 0: it has to be positive")
        limit = _WHOLE_MAX if isinstance(value, int) else _SECONDS_MAX
        if value > limit:
            raise ConfigError(f"{source}: {name} is {value}: it can be at most {limit:,}")
    return value


def _checked_texts(name: str, value: object, source: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"{source}: {name} is {_as_written(value)}: it has to be a list of texts")
    return tuple(value)


def _from_text(table: str, key: str, text: str, source: str) -> object:
    hint = _fields(table, source).get(key, str)
    if hint == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    try:
        if bool in kinds:
            return {"true": True, "false": False}[text.lower()]
        if int in kinds:
            return int(text.replace("_", ""))
        return float(text) if float in kinds else text
    except (ValueError, KeyError):
        raise ConfigError(f"{source}: {table}.{key} cannot be {text!r}: it has to be {_named(kinds)}") from None


def _as_written(value: object) -> str:
    """As a file of settings has it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _named(kinds: tuple[Any, ...]) -> str:
    return " or ".join(_KINDS[kind] for kind in kinds if kind is not NoneType)
