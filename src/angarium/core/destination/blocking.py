"""Why nobody on the node may send anything for now: its disk is full, copies are missing, or it holds as much as it
may."""
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, Level, Report
from angarium.core.destination.node_limits import CODE as NODE_FULL
from angarium.core.destination.node_limits import NodeLimits

WRITE_CODES = ("disk-full", "too-few-copies", "copies-behind")  # nothing can be written, and why


class Blocking:
    def __init__(self, destinations: dict[int, Destination], node_limits: NodeLimits) -> None:
        self._destinations = destinations
        self._node_limits = node_limits
        self._reasons: dict[str, str] = {}  # by code

    def apply(self, destination: Destination) -> None:
        """To one that is new."""
        for code, reason in self._reasons.items():
            destination.publishing.set_blocked(code, reason)
        destination.publishing.node_refusal = self._node_limits.refusal

    def writes(self, reason: str, code: str = "disk-full") -> list[Command]:
        """`reason` empty: they are possible again."""
        text = f"writes are blocked: {reason}" if reason else "writes are possible again"
        level = Level.ERROR if reason else Level.INFO
        commands: list[Command] = [Report(level, "disk-blocked" if reason else "disk-unblocked", text)]
        # The new one first: a producer that is blocked for another reason than before was never unblocked.
        others = [other for other in WRITE_CODES if other in self._reasons and (other != code or not reason)]
        commands += self._block_all(code, reason) if reason else []
        return commands + [command for other in others for command in self._block_all(other, "")]

    def of_writes(self) -> tuple[str, str] | None:
        """Code and reason why nothing can be written; None: it can."""
        return next(((code, self._reasons[code]) for code in WRITE_CODES if code in self._reasons), None)

    def keep_node_limits(self) -> list[Command]:
        limits = self._node_limits
        if not limits.is_set or not limits.has_changed():
            return []
        text = limits.reason or "the node holds less than its limits again, or can make room"
        level, code = (Level.WARNING, "node-full") if limits.reason else (Level.INFO, "node-not-full")
        reports: list[Command] = [] if limits.is_quiet else [Report(level, code, text)]
        return reports + self._block_or_refuse()

    def node_limits_changed(self) -> list[Command]:
        """Others are set."""
        if self._node_limits.is_set or not self._node_limits.reason:
            return self.keep_node_limits() or self._block_or_refuse()  # it may be the other one of these from now on
        self._node_limits.clear()
        return [Report(Level.INFO, "node-not-full", "the node has no limits any more"), *self._block_or_refuse()]

    def _block_or_refuse(self) -> list[Command]:
        refusal = self._node_limits.refusal
        for destination in self._destinations.values():
            destination.publishing.node_refusal = refusal
        return self._block_all(NODE_FULL, "" if refusal else self._node_limits.reason)

    def _block_all(self, code: str, reason: str) -> list[Command]:
        """All producers, or (empty reason) no longer for that."""
        self._reasons.pop(code, None)
        if reason:
            self._reasons[code] = reason
        destinations = self._destinations.values()
        return [command for each in destinations for command in each.publishing.set_blocked(code, reason)]
