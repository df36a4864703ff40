"""What the broker's logs hold, as a query's driver asks for it: over one connection, and not more often than agreed.

Spark asks an idle stream some 90 times a second whether there is something new.
"""
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from angarium.core.errors import AngariumError, Rejected
from angarium.core.patterns import NamePattern
from angarium.spark.offsets import Offsets
from angarium.spark.options import SourceOptions

if TYPE_CHECKING:
    from angarium.client import blocking
    from angarium.client.log import LogDescription

_log = logging.getLogger("angarium")
_ASKED_BY_NAME_MAX = 32  # more are found in the list of all


class Metadata:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection: blocking.Connection | None = None
        self._found: list[LogDescription] = []
        self._found_at = float("-inf")
        self._noted: Offsets = {}

    def described(self, *, max_age_s: float = 0.0) -> "list[LogDescription]":
        """The destinations that are to be read, by name; those that do not exist are left out."""
        if time.monotonic() - self._found_at > max_age_s:
            self._found = self._ask()
            self._found_at = time.monotonic()
        return self._found

    def _ask(self) -> "list[LogDescription]":
        options, connection = self._options, self._connected()
        if options.names and len(options.names) <= _ASKED_BY_NAME_MAX:
            found = [self._of(connection, name) for name in sorted(options.names)]
            return [described for described in found if described is not None]
        if options.names:
            return [described for described in connection.logs() if described.name in options.names]
        pattern = NamePattern(options.pattern, options.pattern_syntax)
        return [described for described in connection.logs(pattern.prefix) if pattern.matches(described.name)]

    def _of(self, connection: "blocking.Connection", name: str) -> "LogDescription | None":
        try:
            return connection.log(name).describe()
        except Rejected as refused:
            if refused.code != "unknown-destination":
                raise
            return None

    def missing(self) -> list[str]:
        """Of those that were asked for by name."""
        return sorted(set(self._options.names) - {described.name for described in self.described(max_age_s=1.0)})

    def seek(self, name: str, timestamp_ms: int) -> Sequence[int]:
        return self._connected().log(name).seek(timestamp_ms)

    def note(self, reader: str, offsets: Offsets) -> None:
        """Tell brokers how far the query is. It is for people to look at: if it fails, the query does not."""
        if self._noted == offsets:
            return
        for name, place in offsets.items():
            try:
                self._connected().log(name).note(reader, place.positions.values(), identity=place.identity)
            except AngariumError as error:
                _log.info("reader-not-noted: %r: %s", name, error)
        self._noted = offsets

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> "blocking.Connection":
        if self._connection is None:
            self._connection = connected(self._options)
        return self._connection


def connected(options: SourceOptions) -> "blocking.Connection":
    from angarium.client import blocking  # half of all that a new process of Spark has to import, and not all connect

    return blocking.connect(options.address, name="spark")
