"""Reports of what may happen very often at once: one a second at most, which says how many there were."""
from angarium.core.report import Level, Report

EVERY_S = 1.0


class Seldom:
    def __init__(self, level: Level, code: str, one: str, several: str) -> None:
        """`one` is what happened, `several` how it is said of more than one."""
        self._level = level
        self._code = code
        self._one, self._several = one, several
        self._count = 0  # since it was last reported
        self._reported_at: float | None = None

    def report(self, details: str, *, now: float) -> list[Report]:
        """It happened once more: "3 clients turned away, `details`", or nothing."""
        self._count += 1
        if self._reported_at is not None and now - self._reported_at < EVERY_S:
            return []
        count, self._count, self._reported_at = self._count, 0, now
        what = self._one if count == 1 else self._several
        return [Report(self._level, self._code, f"{count:,} {what}, {details}")]
