"""The copies of replica groups that a node holds: those of its configuration from the start, others when the cluster
has decided that it shall.

    configured here --start--> held
    decided, not configured --the store is opened--> held, and announced: the record of this node names it from then on

A node that starts again finds what was decided in the state, and opens the same store. A copy that was removed stays on
disk, and is no longer announced after the next start unless the configuration names it.
"""
import logging
from collections.abc import Callable

from angarium.core.errors import AngariumError
from angarium.core.groups.configuration import EMPTY, GroupConfiguration
from angarium.core.groups.records import Hosted, Placement
from angarium.node.cluster.replica import ReplicaHost
from angarium.node.cluster.stores import Stores
from angarium.store.interface import Store

_log = logging.getLogger("angarium")


class Hosting:
    """`make(group, store)`: a replica on that store. `held()`: there is one more."""

    def __init__(
        self, name: str, stores: Stores, make: Callable[[str, Store], ReplicaHost], held: Callable[[], None]
    ) -> None:
        self._name = name
        self._stores = stores
        self._make = make
        self._held = held
        self._opening: set[str] = set()
        self.replicas = {group: make(group, store) for group, store in stores.replicas.items()}

    def numbered(self, number: int) -> ReplicaHost | None:
        return next((host for host in self.replicas.values() if host.number == number), None)

    def announced(self) -> tuple[Hosted, ...]:
        """For the record of this node."""
        return tuple(Hosted(group, host.me.store, _is_empty(host)) for group, host in self.replicas.items())

    def lacks(self, configuration: GroupConfiguration) -> bool:
        """This node is to hold a copy, has none, and can open one."""
        group = configuration.group
        is_wanted = configuration.is_formed and self._name in configuration.members
        return is_wanted and group not in self.replicas and group not in self._opening and self._stores.can_open

    async def open(
        self, group: str, latest: Callable[[], GroupConfiguration], placement: Callable[[], Placement]
    ) -> None:
        self._opening.add(group)
        try:
            store = await self._stores.open_later(group)
        except (AngariumError, OSError) as error:
            _log.error("copy-not-opened: of group %r, which this node is to hold: %s", group, error)
            return
        finally:
            self._opening.discard(group)
        host = self.replicas[group] = self._make(group, store)
        _log.info("copy-opened: of group %r, as was decided", group)
        host.configured(latest())
        host.placed(placement())
        self._held()


def _is_empty(host: ReplicaHost) -> bool:
    """No epoch was ever seen there."""
    return host.replication.local.written == EMPTY and not host.replication.local.fence
