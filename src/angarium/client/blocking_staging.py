"""Staged messages without async: see `client.staging`."""
from collections.abc import Iterable

from angarium.client.blocking_loop import LoopThread
from angarium.client.destination import Destination
from angarium.client.staging import Stage, StagedPart
from angarium.core.client.gathered import Gathered


class BlockingStage:
    def __init__(self, thread: LoopThread, stage: Stage) -> None:
        self._thread = thread
        self._stage = stage

    def send(self, destination: Destination, messages: Iterable[Gathered], timeout_s: float | None = None) -> None:
        """See `Stage.send`."""
        self._thread.run(self._stage.send(destination, messages), timeout_s, what=f"staging for {destination!r}")

    def finish(self, timeout_s: float | None = None) -> list[StagedPart]:
        """See `Stage.finish`."""
        return self._thread.run(self._stage.finish(), timeout_s, what="staging")

    def abandon(self, timeout_s: float | None = None) -> None:
        """See `Stage.abandon`."""
        self._thread.run(self._stage.abandon(), timeout_s, what="dropping what is staged")
