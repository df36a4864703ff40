"""Times as they are written on a command line: `90s`, `15min`, `2h`, `3d`; a number alone is seconds."""
import re

from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.usage import WHOLE_MAX

SECONDS_MAX = WHOLE_MAX // 1_000  # in milliseconds they are still a number that can be sent
_UNITS_S = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|)")


def parse_seconds(option: str, text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None or len(text) > 20:
        reason = f"{option} {text!r}: use a number with s, min, h or d, as in 90s or 2h; alone it is seconds"
        raise Failure(reason, EXIT_USAGE)
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > SECONDS_MAX:
        raise Failure(f"{option} {text}: it can be at most {SECONDS_MAX:,} seconds", EXIT_USAGE)
    return seconds
