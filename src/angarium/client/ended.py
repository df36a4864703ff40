"""The error that goes with an end."""
from angarium.core.errors import AngariumError, Rejected, Unavailable


def ended_error(what: str, code: str, reason: str) -> AngariumError | None:
    """For something that has ended with this code; None if that was asked for."""
    if not code:
        return None
    if code == "close-timeout":
        return Unavailable(reason)
    return Rejected(code, f"{what}: {reason}" if reason else f"{what} was ended by the broker: {code}")
