"""Where a node's events go: its own file, and the topic `_LOG`."""
from dataclasses import dataclass

from angarium.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EventSettings:
    # The file, JSON lines. Empty: events.jsonl in the data directory.
    file: str = ""
    # A file that is longer is put aside as .1, the one before as .2, and so on.
    file_bytes_max: int = 16 << 20
    # Files that are kept, with the one that is written. Beyond it the oldest is deleted.
    files_max: int = 4
    # Events that wait to be written, and those that wait to be published. Past it the new one is dropped, and counted.
    queue_max: int = 10_000
    # Latest events that are kept in memory, for `angarium log`.
    recent_max: int = 1_000
    # Whether they are published to `_LOG` at all.
    publish: bool = True

    def __post_init__(self) -> None:
        if self.file_bytes_max < 64 << 10:
            raise ConfigError(f"events.file_bytes_max {self.file_bytes_max:,}: at least 65,536")
