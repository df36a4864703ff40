"""Writers that stage, in a whole cluster: a batch for queues wherever their names' slots are, each of which commits for
itself, while its group's primary moves, dies, and is cut off.
"""
from collections.abc import Iterator, Sequence

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.storage import Operation
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.staging import StagingWorld, draw_staging_settings
from angarium.sim.world import WorldSettings

_CREATE_S_MAX = 20.0


class ClusterStagingWorld(ClusterWorld, StagingWorld):
    spared = ("clock-set",)  # what is staged is kept by the clock of whoever is primary
    confirms = ("disk",)

    def __init__(
        self, seed: int, settings: WorldSettings | None = None, *, shape: Shape | None = None, is_traced: bool = False
    ) -> None:
        super().__init__(seed, settings or draw_staging_settings(seed), shape=shape, is_traced=is_traced)
        self._prepare()

    # -- what the witnesses are shown ------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        super().to_manager(event)
        self.staging.to_manager(event, self.clock.now)

    def from_manager(self, command: ToSession, token: int) -> None:
        self.staging.from_manager(command)
        super().from_manager(command, token)

    def synced(self, group: int, operations: Sequence[Operation]) -> None:
        super().synced(group, operations)
        self.staging.synced(operations, self.clock.now)

    # -- a random run ----------------------------------------------------------------------------------

    def _settle_in(self) -> None:
        chance = self.chance("staging")
        administrator = self.client("administrator of queues")
        self._create(administrator, chance)
        self._wait(self._unmade, _CREATE_S_MAX, "queues are made")
        administrator.close()
        self._settle(chance, late_s=0.0)

    def _unmade(self) -> Iterator[str]:
        yield from (name for name in self._names if name not in self.ledger.messages.by_name)
