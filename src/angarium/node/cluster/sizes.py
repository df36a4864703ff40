"""What fits through a cluster: a client's frame into a message of the bus, and any such message into every journal.

A client manager that could not pass on what a client sent, or a copy that could not write what the bus brought, would
have to stop, and the next one after it. So this is made sure of before a node starts.
"""
from collections.abc import Iterator
from pathlib import Path

from angarium.core.bus.events import BusSettings
from angarium.core.errors import ConfigError
from angarium.node.config import NodeConfig
from angarium.store.interface import Store

_MESSAGE_BYTES_MAX = BusSettings().message_bytes_max
_BESIDE_BYTES = 64 << 10  # an envelope; or the records that are written together with a batch
FRAME_BYTES_MAX = _MESSAGE_BYTES_MAX - _BESIDE_BYTES
_GROUP_BYTES_MIN = _MESSAGE_BYTES_MAX + _BESIDE_BYTES
WRITE_BYTES_MAX = _MESSAGE_BYTES_MAX - _BESIDE_BYTES // 2  # of what a primary has to tell its backups at once
SEGMENT_BYTES_MIN = 10 << 20  # of a journal that takes such a group: an eighth of it is held in reserve


def too_large_or_small(config: NodeConfig) -> Iterator[str]:
    """Mistakes in the settings of a node of a cluster."""
    frame_bytes_max, segment_bytes = config.session.frame_bytes_max, config.store.segment_bytes
    if frame_bytes_max > FRAME_BYTES_MAX:
        yield (
            f"session.frame_bytes_max {frame_bytes_max:,}: at most {FRAME_BYTES_MAX:,} in a cluster, as the bus takes "
            f"messages of {_MESSAGE_BYTES_MAX:,} bytes; longer bodies are sent as streams"
        )
    if segment_bytes is not None and segment_bytes < SEGMENT_BYTES_MIN:
        yield (
            f"store.segment_bytes {segment_bytes:,}: at least {SEGMENT_BYTES_MIN:,} in a cluster, for the longest "
            "message of the bus; or leave it out"
        )


def check_journal(path: Path, store: Store) -> None:
    """Raise ConfigError if it was made for less; a journal keeps the size that it was made with."""
    if store.group_bytes_max < _GROUP_BYTES_MIN:
        raise ConfigError(
            f"{path}: its journal takes {store.group_bytes_max:,} bytes at once, and the bus may bring "
            f"{_GROUP_BYTES_MIN:,}; while other copies are in sync, put that directory aside: it is made anew, and "
            "copied from them"
        )
