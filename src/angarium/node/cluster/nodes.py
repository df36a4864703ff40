"""Who is in the cluster, as group services have decided; and to whom of them, or of others, there is a link."""
from angarium.core.groups.records import NodeRecord

DEPARTED_S = 3_600.0  # so long somebody who was here and has gone is still spoken of
DEPARTED_MAX = 1_000


class Nodes:
    def __init__(self, name: str, incarnation: bytes) -> None:
        self.view: dict[str, NodeRecord] = {}  # by name, in the order in which they joined
        self.view_id = 0
        self.has_entered = False  # this node was in the view since its start
        self._me = name
        self._incarnation = incarnation
        self._linked: dict[str, bytes] = {}  # by name: the incarnation that a link is to
        self._departed: dict[str, tuple[NodeRecord, float]] = {}  # who was in the view, and until when

    @property
    def is_here(self) -> bool:
        """This node is in the view."""
        record = self.view.get(self._me)
        return record is not None and record.incarnation == self._incarnation

    @property
    def linked(self) -> list[bytes]:
        return list(self._linked.values())

    @property
    def linked_names(self) -> list[str]:
        return list(self._linked)

    def changed(self, view_id: int, nodes: tuple[NodeRecord, ...], now: float) -> None:
        before, self.view = self.view, {record.name: record for record in nodes}
        self.view_id = view_id
        self.has_entered |= self.is_here
        self._departed |= {name: (record, now) for name, record in before.items() if name not in self.view}
        self._departed = {name: found for name, found in self._departed.items() if name not in self.view}
        while len(self._departed) > DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]

    def departed(self, now: float) -> list[str]:
        """Who was here not long ago: nobody names a client manager but the view, which has it no more."""
        return [name for name, (_, at) in self._departed.items() if now - at < DEPARTED_S]

    def last_seen(self, name: str) -> NodeRecord | None:
        return self._departed[name][0] if name in self._departed else None

    def found(self, name: str, incarnation: bytes) -> None:
        self._linked[name] = incarnation

    def lost(self, incarnation: bytes) -> str:
        """The name of the node to which there is no link any more; empty if it is not known."""
        name = self.name_of(incarnation) or ""
        if self._linked.get(name) == incarnation:
            del self._linked[name]
        return name

    def name_of(self, incarnation: bytes) -> str | None:
        if incarnation == self._incarnation:
            return self._me
        known = [*self._linked.items(), *((record.name, record.incarnation) for record in self.view.values())]
        return next((name for name, other in known if other == incarnation), None)

    def shown(self, incarnation: bytes) -> str:
        """For people."""
        return self.name_of(incarnation) or incarnation.hex()

    def incarnation_of(self, name: str) -> bytes | None:
        """To whom a message for that node goes: a link is newer than the view."""
        record = self.view.get(name)
        return self._linked.get(name) or (None if record is None else record.incarnation)

    def silent(self) -> list[NodeRecord]:
        """In the view, and without a link."""
        linked = set(self._linked.values())
        return [r for r in self.view.values() if r.name != self._me and r.incarnation not in linked]
