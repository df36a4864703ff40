"""Reports of what may happen very often at once: one a second at most, which says how many there were."""
from angarium.core.report import Level, Report

EVERY_S = 1.0


class Seldom:
    def __init__(self, level: Level, code: str) -> None:
        self._level = level
        self._code = code
        self._count = 0  # since it was last reported
        self._reported_at: float | None = None

    def report(self, what: str, details: str, *, now: float) -> list[Report]:
        """`what` happened once more: "3 `what`, `details`", or nothing."""
        self._count += 1
        if self._reported_at is not None and now - self._reported_at < EVERY_S:
            return []
        count, self._count, self._reported_at = self._count, 0, now
        return [Report(self._level, self._code, f"{count:,} {what}, {details}")]
