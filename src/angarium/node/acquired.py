"""What was changed while a node ran: its own file, `acquired.toml` in the data directory.

    version = 3                        # of the whole

    ["destination.resume_grace_s"]     # one table for each value
    value = 5.0
    version = 2                        # of the whole when it was set

The node writes it, whole, and puts it in place of the one before at once: whoever reads it finds the old one or the new
one. People leave it alone while the node runs.
"""
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from angarium.core.errors import ConfigError
from angarium.node.config import toml_line

FILE_NAME = "acquired.toml"
_HEAD = "# Written by the node: settings that were changed while it ran; see `angarium config set`.\n"


@dataclass(frozen=True, slots=True)
class Setting:
    value: object
    version: int


@dataclass(frozen=True, slots=True)
class Acquired:
    version: int = 0
    settings: Mapping[str, Setting] = field(default_factory=dict)  # by "table.key"


def read_acquired(path: Path) -> Acquired:
    """Raises ConfigError if it is there and cannot be read."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Acquired()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; mend it, or delete it and set its values again") from None
    version = found.pop("version", None)
    settings = {key: _setting(entry) for key, entry in found.items()}
    if not isinstance(version, int) or not all(settings.values()):
        raise ConfigError(f"{path}: it has no version, or a value without one; delete it and set its values again")
    return Acquired(version, {key: setting for key, setting in settings.items() if setting is not None})


def _setting(entry: object) -> Setting | None:
    match entry:
        case {"value": value, "version": int(version)}:
            return Setting(value, version)
    return None


def write_acquired(path: Path, acquired: Acquired) -> None:
    """Durable when it returns."""
    lines = [_HEAD, f"version = {acquired.version}\n"]
    for key, setting in sorted(acquired.settings.items()):
        lines.append(f'\n["{key}"]\n{toml_line("value", setting.value)}\nversion = {setting.version}\n')
    fresh = path.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o640)) as file:
        file.write("".join(lines))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
