"""The copies of replica groups that a node holds: those of its configuration from the start, others when the cluster
has decided that it shall.

    configured here --start--> held
    decided, not configured --the store is opened--> held, and announced: the record of this node names it from then on
    held --decided that it is no copy any more--> closed, its files deleted, no longer announced

A node that starts again finds what was decided in the state, and opens the same store.

Files are deleted when nothing is in doubt: this node has seen in its decisions that it held a copy, and then that it
does not any more, and the store has not been told of a later epoch (`Replication.configuration` is then not that one):
a node that starts may hear of decisions long past, after which its copy came back and counts. One that was down
when its copy was removed hears of it at its start; if the log begins later, it leaves alone what it has.
"""
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from angarium.core.errors import AngariumError
from angarium.core.groups.configuration import EMPTY, GroupConfiguration
from angarium.core.groups.records import Hosted, Placement
from angarium.node.cluster.replica import ReplicaHost
from angarium.node.cluster.stores import Stores
from angarium.store.interface import Store

_log = logging.getLogger("angarium")


@dataclass(frozen=True, slots=True)
class HostingWays:
    make: Callable[[str, Store], ReplicaHost]  # a replica of that group, on that store
    held: Callable[[], None]  # there is one more, or one less
    latest: Callable[[str], GroupConfiguration]
    placement: Callable[[], Placement]


class Hosting:
    def __init__(self, name: str, stores: Stores, ways: HostingWays) -> None:
        self._name = name
        self._stores = stores
        self._ways = ways
        self._busy: set[str] = set()  # groups whose store is being opened, or deleted
        self.replicas = {group: ways.make(group, store) for group, store in stores.replicas.items()}

    def numbered(self, number: int) -> ReplicaHost | None:
        return next((host for host in self.replicas.values() if host.number == number), None)

    def announced(self) -> tuple[Hosted, ...]:
        """For the record of this node."""
        return tuple(Hosted(group, host.me.store, _is_empty(host)) for group, host in self.replicas.items())

    def lacks(self, configuration: GroupConfiguration) -> bool:
        """This node is to hold a copy, has none, and can open one."""
        group = configuration.group
        is_wanted = configuration.is_formed and self._name in configuration.members
        return is_wanted and group not in self.replicas and group not in self._busy and self._stores.can_open

    def is_removed(self, before: GroupConfiguration | None, configuration: GroupConfiguration) -> bool:
        """It was decided that what this node holds of the group is no copy any more."""
        host = self.replicas.get(configuration.group)
        if host is None or before is None or not self._stores.can_open or not configuration.is_formed:
            return False
        has_left = self._name in before.members and self._name not in configuration.members
        return has_left and host.replication.configuration == configuration

    def let_go(self, group: str) -> Coroutine[None, None, None]:
        """Nobody finds it any more; what is to be waited for closes and deletes it. Decisions may come before that."""
        self._busy.add(group)
        return self._let_go(group, self.replicas.pop(group))

    async def _let_go(self, group: str, host: ReplicaHost) -> None:
        try:
            await host.stop()
            await self._stores.remove(group)
            _log.info("copy-removed: of group %r, as was decided; what was stored of it is deleted", group)
        except (AngariumError, OSError) as error:
            _log.error("copy-not-deleted: of group %r, which this node no longer holds: %s", group, error)
        finally:
            self._busy.discard(group)
        self._ways.held()
        if self.lacks(self._ways.latest(group)):  # it has been added again
            await self.open(group)

    def open(self, group: str) -> Coroutine[None, None, None]:
        self._busy.add(group)
        return self._open(group)

    async def _open(self, group: str) -> None:
        if self._name not in self._ways.latest(group).members and not self._stores.has(group):
            self._busy.discard(group)
            return  # long past: a node that starts hears one by one of all decisions that its log still has
        try:
            store = await self._stores.open_later(group)
        except (AngariumError, OSError) as error:
            _log.error("copy-not-opened: of group %r, which this node is to hold: %s", group, error)
            return
        finally:
            self._busy.discard(group)
        host = self.replicas[group] = self._ways.make(group, store)
        _log.info("copy-opened: of group %r, as was decided", group)
        latest = self._ways.latest(group)
        host.configured(latest)
        host.placed(self._ways.placement())
        self._ways.held()
        if self._name not in latest.members and host.replication.configuration == latest:  # removed meanwhile
            await self.let_go(group)


def _is_empty(host: ReplicaHost) -> bool:
    """No epoch was ever seen there."""
    return host.replication.local.written == EMPTY and not host.replication.local.fence
