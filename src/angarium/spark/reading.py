"""A task: the messages of its ranges, as Arrow record batches of about `ROWS` messages.

It keeps to what was planned: all positions of its ranges are read, or it fails, unless the user would rather lose some
(`failOnDataLoss`).
"""
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from angarium.client import blocking
from angarium.client.log import LogGone, LogPage, LogPiece
from angarium.core.errors import Rejected, Unavailable
from angarium.spark import process
from angarium.spark.columns import RecordBatches, omitted_by
from angarium.spark.losing import lost
from angarium.spark.metadata import connected
from angarium.spark.options import SourceOptions
from angarium.spark.planning import Range

ROWS = 10_000
BYTES = 8 << 20  # of batches, for one record batch
BEHIND_S_MAX = 30.0  # how long a copy may be behind what was planned
_AGAIN_S = 0.05
_GONE = ("destination-removed", "unknown-destination")

_log = logging.getLogger("angarium")


def read_ranges(wanted: Sequence[Range], options: SourceOptions, schema: Any) -> Iterator[Any]:
    process.prepare()
    with connected(options) as connection:
        for part in wanted:
            yield from _batched(part.destination, _pages(connection, part, options, schema.names), schema)


def _batched(destination: str, pages: Iterator[LogPage], schema: Any) -> Iterator[Any]:
    record_batches = RecordBatches(destination, schema)
    pieces: list[LogPiece] = []
    rows = size_bytes = 0
    for page in pages:
        for piece in page.pieces:
            pieces.append(piece)
            rows += piece.batch.count
            size_bytes += len(piece.batch.data)
            if rows >= ROWS or size_bytes >= BYTES:
                yield record_batches.of(pieces)
                pieces, rows, size_bytes = [], 0, 0
    if pieces:
        yield record_batches.of(pieces)


def _pages(
    connection: blocking.Connection, part: Range, options: SourceOptions, columns: Sequence[str]
) -> Iterator[LogPage]:
    log = connection.log(part.destination)
    position, omitted = part.low, omitted_by(columns)
    patience_until = time.monotonic() + BEHIND_S_MAX
    while position < part.high:
        before = position
        try:
            pages = log.pages(
                position, part.high, selector=options.selector, omit=omitted, identity=part.identity
            )
            for page in pages:
                position = page.next
                yield page
        except LogGone as gone:
            if options.fail_on_data_loss:
                raise lost(gone.reason) from None
            _log.warning("data-lost: %s", gone.reason)
            position = gone.high
        except Rejected as refused:
            if refused.code not in _GONE:
                raise
            if options.fail_on_data_loss:
                raise lost(refused.reason) from None
            _log.warning("data-lost: %s", refused.reason)
            return
        if position > before:
            patience_until = time.monotonic() + BEHIND_S_MAX
        elif time.monotonic() > patience_until:
            raise Unavailable(
                f"{part.destination!r}: the log ends before position {position}, and the batch at {part.high}; "
                f"waited for {BEHIND_S_MAX:g} s"
            )
        else:
            time.sleep(_AGAIN_S)
