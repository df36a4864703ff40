"""Every error that Angarium raises on purpose.

    AngariumError
    ├── LocalProtocolError    our caller broke a rule of the interface
    ├── RemoteProtocolError   the peer broke a rule of the wire protocol: its connection is closed with `code`
    ├── Unavailable           it cannot be done now; a retry may help
    ├── Rejected              refused for good, with a stable `code`
    ├── ConfigError           a setting is wrong
    └── StorageCorrupt        the store holds something that was never written

A message gives fact, identity, limit and remedy. A code is part of the protocol
(docs/protocol/codes.md): programs may rely on it, texts may change.
"""
from collections.abc import Iterable


class AngariumError(Exception):
    """The root of all errors raised on purpose."""


class LocalProtocolError(AngariumError):
    """Our caller used an object in a state that does not allow it."""


class MessageTooLong(LocalProtocolError):
    """What was to be sent is longer than the way takes. Nothing was sent, and nothing else is harmed."""


class RemoteProtocolError(AngariumError):
    """The peer sent what the protocol does not allow."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Unavailable(AngariumError):
    """It cannot be done now; trying again later may help."""


class Rejected(AngariumError):
    """The broker refused, for good."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class ConfigError(AngariumError):
    """Settings are unknown, malformed or out of range: one mistake, or several at once."""

    def __init__(self, *mistakes: str) -> None:
        several = "".join(f"\n    {mistake}" for mistake in mistakes)
        super().__init__(mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} mistakes:{several}")
        self.mistakes = mistakes


def refuse(mistakes: Iterable[str]) -> None:
    """Raise ConfigError with all of them, if there are any."""
    if found := tuple(mistakes):
        raise ConfigError(*found)


class StorageCorrupt(AngariumError):
    """Stored bytes fail their checksum or their format."""
