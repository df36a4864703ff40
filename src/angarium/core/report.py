"""What machines tell people: lines of the log, as values."""
from enum import IntEnum

import msgspec


class Level(IntEnum):
    INFO = 20
    WARNING = 30
    ERROR = 40


class Report(msgspec.Struct, frozen=True):
    """An event for people: the log."""

    level: Level
    code: str
    text: str
