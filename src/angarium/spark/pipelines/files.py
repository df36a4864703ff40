"""The files of an archive: staged, taken up by a manifest, then moved to where readers look.

    _staging/12/destination=orders/day=2026-11-16/part-….parquet     what generation 12 writes
    _manifest/current.json                                           names it: from here on it is part of the archive
    destination=orders/day=2026-11-16/g12-0.parquet                  where it is moved, and what it replaces is deleted

What a manifest says is done by `settle`, as often as needed: after a crash the next run begins with it. Readers that
know nothing of manifests may miss what is being moved, and never see anything twice.
"""
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from angarium.core.errors import StorageCorrupt, Unavailable
from angarium.spark.pipelines.manifest import DIRECTORY, ArchivedFile, Manifest, sync_directory

STAGING = "_staging"


@contextmanager
def locked(root: Path, directory: str = DIRECTORY) -> Iterator[None]:
    """For one run at a time; released by the system if the process dies."""
    (root / directory).mkdir(parents=True, exist_ok=True)
    with (root / directory / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another run is busy with {root / directory}; wait for it, or stop it") from None
        yield


def staging_of(root: Path, generation: int) -> Path:
    return root / STAGING / str(generation)


def staged_files(root: Path, generation: int) -> list[ArchivedFile]:
    """What a run has written, as it will be named in the manifest; durable when it returns."""
    found: list[ArchivedFile] = []
    staging = staging_of(root, generation)
    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        partition = path.parent.relative_to(staging)
        named = partition / f"g{generation}-{number}.parquet"
        renamed = staging / named
        path.rename(renamed)
        found.append(described(renamed, named, generation))
    for directory in {staging, *(staging / file.path for file in found)}:
        sync_directory(directory if directory.is_dir() else directory.parent)
    return found


def described(path: Path, named: Path, generation: int) -> ArchivedFile:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    names = range(footer.num_columns) if groups else ()
    columns = {groups[0].column(number).path_in_schema: number for number in names}
    positions = [group.column(columns["position"]).statistics for group in groups]
    bodies = [group.column(columns["body"]).statistics for group in groups]
    destination, day = (part.split("=", 1)[1] for part in named.parent.parts)
    return ArchivedFile(
        path=str(named),
        destination=destination,
        day=day,
        rows=footer.num_rows,
        bytes=path.stat().st_size,
        bodies_elsewhere=sum(each.null_count for each in bodies),
        position_first=min((each.min for each in positions), default=0),
        position_last=max((each.max for each in positions), default=0),
        generation=generation,
    )


def settle(root: Path, manifest: Manifest) -> None:
    """Make the directory agree with the manifest: move what was staged for it, delete what it does not name."""
    named = {file.path for file in manifest.files}
    for path in root.glob("destination=*/day=*/*.parquet"):
        if str(path.relative_to(root)) not in named:
            path.unlink()
    for file in manifest.files:
        staged, final = staging_of(root, file.generation) / file.path, root / file.path
        if not final.exists():
            if not staged.exists():
                raise StorageCorrupt(f"{final} is named in the manifest of {root}, and missing; restore it from a copy")
            final.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(final)
            sync_directory(final.parent)
    shutil.rmtree(root / STAGING, ignore_errors=True)
