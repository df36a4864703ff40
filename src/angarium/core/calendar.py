"""A time for people, of whatever number somebody sent as one."""
from datetime import UTC, datetime

_CALENDAR_END_MS = 253_402_300_800_000  # `datetime` knows no year 10000


def calendar_text(wall_ms: int) -> str:
    """In UTC, to the second. Clients and settings may name times that no calendar has; those stay numbers."""
    if not 0 <= wall_ms < _CALENDAR_END_MS:
        return f"{wall_ms:,} ms after 1970"
    return datetime.fromtimestamp(wall_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
