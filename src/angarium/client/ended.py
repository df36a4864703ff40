"""The error that goes with an end, and how an application's own error ends things."""
from angarium.core.errors import AngariumError, Rejected, Unavailable

LEAVING_TIMEOUT_S = 1.0  # to confirm what was sent when the application leaves by an exception, which must not wait


def note_unfinished(error: BaseException, unfinished: AngariumError) -> None:
    """The application's own error is the one to see; what could not be finished goes with it."""
    error.add_note(f"angarium: {unfinished}")


def ended_error(what: str, code: str, reason: str) -> AngariumError | None:
    """For something that has ended with this code; None if that was asked for."""
    if not code:
        return None
    if code == "close-timeout":
        return Unavailable(reason)
    return Rejected(code, f"{what}: {reason}" if reason else f"{what} was ended by the broker: {code}")
