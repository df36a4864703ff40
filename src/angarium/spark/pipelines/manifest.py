"""What an archive holds, in one file that is replaced as a whole: `_manifest/current.json`.

    places   how far each destination is archived: its id, and one past the last position of each priority
    files    every file, with the destination, the day and the positions of what is in it

Writing a manifest is what makes files part of the archive: whatever lies beside them and is not named in it, is not.
So an archive has every message once, wherever a run was ended (`files`).
"""
import os
from pathlib import Path
from typing import Any

import msgspec

from angarium.core.errors import ConfigError
from angarium.core.malformed import MALFORMED

DIRECTORY = "_manifest"
FILES_MAX = 1_000_000  # more make the manifest a burden: archive into another directory
_VERSION = 1


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # under the archive
    destination: str
    day: str  # by the clock of those who sent: "2026-11-16"
    rows: int
    bytes: int
    bodies_elsewhere: int  # rows without a body: it was sent as a stream, and is too large to be archived
    position_first: int
    position_last: int
    generation: int  # of the manifest that took it up


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: int = _VERSION
    generation: int = 0
    places: dict[str, dict[str, int]] = {}  # as offsets of the source: {"orders": {"identity": 7, "4": 120}}
    gaps: list[str] = []  # what was gone before it could be archived, told for people
    files: list[ArchivedFile] = []

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def load(root: Path) -> Manifest:
    path = root / DIRECTORY / "current.json"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except MALFORMED as error:
        raise ConfigError(f"{path} is no manifest of an archive: {error}; restore it from a copy") from None
    if manifest.version != _VERSION:
        raise ConfigError(f"{path} has version {manifest.version}, and this release reads version {_VERSION}")
    return manifest


def save(root: Path, manifest: Manifest) -> None:
    """As a whole or not at all, and durable when it returns."""
    if len(manifest.files) > FILES_MAX:
        count = f"{len(manifest.files):,} files, more than {FILES_MAX:,}"
        raise ConfigError(f"the archive {root} would have {count}; begin another one elsewhere")
    directory = root / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / "current.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def write_whole(path: Path, data: bytes) -> None:
    """Readers see what was there before, or all of this."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_json(manifest: Manifest) -> Any:
    return msgspec.to_builtins(manifest)
