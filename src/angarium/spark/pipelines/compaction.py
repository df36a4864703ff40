"""Few large files from many small ones, a day of a destination at a time.

A new manifest names the large file in place of the small ones; only then are those deleted. Files are copied row group
by row group, in the order of their positions, in little memory.
"""
import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from angarium.spark.pipelines import files, manifest
from angarium.spark.pipelines.manifest import ArchivedFile, Manifest

SMALL_BYTES = 32 << 20  # a file that is larger stays as it is
FILE_BYTES = 128 << 20  # about what is put together
ROWS_PER_GROUP = 100_000


def compacted(root: Path, known: Manifest) -> tuple[Manifest, int]:
    """The manifest afterwards, and how many files were replaced."""
    groups = list(together(known.files))
    if not groups:
        return known, 0
    generation = known.generation + 1
    made: list[ArchivedFile] = []
    shutil.rmtree(files.staging_of(root, generation), ignore_errors=True)  # left by a run that was ended
    for number, group in enumerate(groups):
        named = Path(group[0].path).parent / f"g{generation}-{number}.parquet"
        path = files.staging_of(root, generation) / named
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy([root / file.path for file in group], path)
        made.append(files.described(path, named, generation))
        manifest.sync_directory(path.parent)
    replaced = {file.path for group in groups for file in group}
    kept = [file for file in known.files if file.path not in replaced]
    changed = msgspec.structs.replace(known, generation=generation, files=[*kept, *made])
    manifest.save(root, changed)
    files.settle(root, changed)
    return changed, len(replaced)


def together(known: Iterable[ArchivedFile]) -> Iterable[list[ArchivedFile]]:
    """Small files of the same destination and day, as many as make a large one; two at least."""
    small = sorted(
        (file for file in known if file.bytes < SMALL_BYTES),
        key=lambda file: (file.destination, file.day, file.generation, file.position_first),
    )
    for _, of_day in groupby(small, key=lambda file: (file.destination, file.day)):
        group: list[ArchivedFile] = []
        size_bytes = 0
        for file in of_day:
            if group and size_bytes + file.bytes > FILE_BYTES:
                if len(group) > 1:
                    yield group
                group, size_bytes = [], 0
            group.append(file)
            size_bytes += file.bytes
        if len(group) > 1:
            yield group


def _copy(sources: list[Path], target: Path) -> None:
    schema = pq.read_schema(sources[0])
    with pq.ParquetWriter(target, schema, compression="snappy") as writer:
        for source in sources:
            for batch in pq.ParquetFile(source).iter_batches(ROWS_PER_GROUP):
                writer.write_batch(batch.cast(schema))
