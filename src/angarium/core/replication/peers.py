"""What a primary knows of the other replicas: who is waited for, who is late, who may join, who may be a host.

Required for every commit are the in-sync replicas of the configuration, and one that is asked to be admitted, from the
moment of asking: the decision may hold long before we hear of it. Nobody is left out by ourselves: group services are
asked, and only their next configuration changes who is required.
"""
from collections import deque
from dataclasses import dataclass

from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.messages import AdmitAsk, ShrinkAsk
from angarium.core.replication.events import Command, ReplicationSettings, ToGroups
from angarium.core.report import Level, Report


@dataclass(slots=True, eq=False)
class Peer:
    """Another replica, as far as we know."""

    replica: Replica
    acked: int | None = None  # it has all up to here; None: it has not said hello in this epoch, or has to copy
    since: float = 0.0  # when we began to wait for its hello
    is_joining: bool = False  # admission was asked for: required
    admit_after: float = 0.0  # it was late: not at once again


class Peers:
    def __init__(self, me: Replica, settings: ReplicationSettings) -> None:
        self._me = me
        self._settings = settings
        self._configuration: GroupConfiguration | None = None
        self._peers: dict[Replica, Peer] = {}
        self._marks: deque[tuple[int, float]] = deque()  # number, when our own disk had it; while not committed
        self._asked_at: dict[str, float] = {}  # what was asked of group services, when
        self._late_told: set[Replica] = set()  # in this epoch

    @property
    def configuration(self) -> GroupConfiguration:
        assert self._configuration is not None
        return self._configuration

    def configure(self, configuration: GroupConfiguration, *, now: float) -> None:
        self._configuration = configuration
        self._asked_at.clear()
        self._late_told.clear()
        for replica in configuration.in_sync:
            if replica != self._me:
                self._peers.setdefault(replica, Peer(replica))
        members = set(configuration.members)
        self._peers = {replica: peer for replica, peer in self._peers.items() if replica.node in members}
        for replica, peer in self._peers.items():
            peer.is_joining = False
            if replica not in configuration.in_sync:
                peer.acked = None  # it may be gone: who is there says hello in each epoch
        self.excuse(now)

    def find(self, replica: Replica) -> Peer | None:
        return self._peers.get(replica)

    def met(self, replica: Replica, *, now: float) -> Peer | None:
        """None for a stranger."""
        if replica.node not in self.configuration.members:
            return None
        return self._peers.setdefault(replica, Peer(replica, since=now))

    def required(self) -> list[Peer]:
        configured = [self._peers[replica] for replica in self.configuration.in_sync if replica != self._me]
        return configured + [peer for peer in self._peers.values() if peer.is_joining and peer not in configured]

    def reached(self, written: int) -> int:
        """What we and all that are required have on disk; -1 if that is not known."""
        for peer in self.required():
            if peer.acked is None:
                return -1
            written = min(written, peer.acked)
        return written

    def host(self, guest: Replica, avoid: Replica | None) -> Replica:
        """An in-sync backup rather than ourselves; not the store that the guest's own node has lost."""
        for replica in self.configuration.in_sync:
            peer = self._peers.get(replica)
            if peer is not None and peer.acked is not None and replica.node != guest.node and replica != avoid:
                return replica
        return self._me

    # -- who is late -----------------------------------------------------------------------------------

    def mark(self, written: int, committed: int, *, now: float) -> None:
        """Our own disk has come so far."""
        while self._marks and self._marks[0][0] <= committed:
            self._marks.popleft()
        if written > committed and (not self._marks or self._marks[-1][0] < written):
            self._marks.append((written, now))

    def excuse(self, now: float) -> None:
        """Count everybody's time from now on."""
        self._marks = deque((number, now) for number, _ in self._marks)
        for peer in self._peers.values():
            peer.since = now

    def late(self, now: float, *, more_s: float = 0.0) -> list[Replica]:
        """In-sync backups that have not acknowledged in time, and `more_s` longer, what our own disk has."""
        found: list[Replica] = []
        for peer in self.required():
            since = peer.since
            if (acked := peer.acked) is not None:
                since = next((at for number, at in self._marks if number > acked), now)
            if now - since >= self._settings.ack_within_s + more_s and peer.replica in self.configuration.in_sync:
                found.append(peer.replica)
        return found

    # -- asking group services ---------------------------------------------------------------------------

    def may_ask(self, what: str, now: float) -> bool:
        asked = self._asked_at.get(what)
        if asked is not None and now < asked + self._settings.ask_again_s:
            return False
        self._asked_at[what] = now
        return True

    def ask_shrink(self, gone: list[Replica], *, now: float) -> list[Command]:
        configuration = self.configuration
        if not gone or not self.may_ask("shrink", now):
            return []
        for replica in gone:
            self._peers[replica].admit_after = now + self._settings.readmit_after_s
        asked: list[Command] = [ToGroups(ShrinkAsk(configuration.group, configuration.epoch, self._me, tuple(gone)))]
        if self._late_told.issuperset(gone):  # asked again: without a majority of the voters for as long as that takes
            return asked
        self._late_told.update(gone)
        text = f"group {configuration.group!r}: no longer to be waited for: {', '.join(map(str, gone))}"
        return [Report(Level.WARNING, "replica-late", text), *asked]

    def ask_admit(self, committed: int, ordered: int, *, now: float) -> list[Command]:
        """For one that has caught up; it is required until we hear of another configuration."""
        configuration = self.configuration
        joining = next((peer for peer in self._peers.values() if peer.is_joining), None)
        if joining is None:
            joining = self._candidate(committed, ordered, now)
        if joining is None or not self.may_ask("admit", now):
            return []
        joining.is_joining = True
        return [ToGroups(AdmitAsk(configuration.group, configuration.epoch, self._me, joining.replica))]

    def _candidate(self, committed: int, ordered: int, now: float) -> Peer | None:
        nodes = {replica.node for replica in self.configuration.in_sync}
        for peer in self._peers.values():
            if peer.acked is None or peer.replica.node in nodes or now < peer.admit_after:
                continue
            if peer.acked >= committed and ordered - peer.acked <= self._settings.admit_orders_max:
                return peer
        return None

    def refused(self, code: str) -> None:
        """What we asked for was not done. A stale epoch tells nothing: the first of two questions may have been
        heard."""
        if code != "stale-epoch":
            for peer in self._peers.values():
                peer.is_joining = False
