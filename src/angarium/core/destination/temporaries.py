"""Temporary destinations: whose they are, and when they go.

    created --connection closed--> gone
            --connection cut off, or the node restarted--> awaiting --grace time--> gone
                                                              └──connection came back--> kept

They belong to a connection, known by the identity that its client repeats when it connects again. Which link it has now
is told by the bus session of that link: what an earlier one still says does not count.
"""
from dataclasses import dataclass, field

from angarium.core.destination.events import DestinationSettings
from angarium.core.errors import Rejected


@dataclass(slots=True)
class Owner:
    destinations: dict[int, None] = field(default_factory=dict)
    session: bytes = b""  # of the link that it has; empty: none
    until: float | None = None  # without one: they are kept so long


class Temporaries:
    def __init__(self, settings: DestinationSettings) -> None:
        self.settings = settings
        self._owners: dict[bytes, Owner] = {}

    def restore(self, client: bytes, destination: int, *, now: float) -> None:
        owner = self._owners.setdefault(client, Owner())
        owner.destinations[destination] = None
        owner.until = now + self.settings.resume_grace_s

    def check_room(self, client: bytes) -> None:
        owner = self._owners.get(client)
        if owner is not None and len(owner.destinations) >= self.settings.temporaries_max:
            reason = (
                f"this connection has {len(owner.destinations):,} temporary destinations, as many as temporaries_max "
                "allows; remove some"
            )
            raise Rejected("too-many-destinations", reason)

    def add(self, client: bytes, session: bytes, destination: int) -> None:
        owner = self._owners.setdefault(client, Owner())
        owner.destinations[destination] = None
        owner.session, owner.until = session, None

    def remove(self, client: bytes, destination: int) -> None:
        owner = self._owners.get(client)
        if owner is not None:
            owner.destinations.pop(destination, None)
            if not owner.destinations:
                del self._owners[client]

    def here(self, client: bytes, session: bytes) -> None:
        owner = self._owners.get(client)
        if owner is not None:
            owner.session, owner.until = session, None

    def ended(self, client: bytes, session: bytes, *, closed: bool, now: float) -> list[int]:
        """Which destinations go now."""
        owner = self._owners.get(client)
        if owner is None or owner.session != session:
            return []
        owner.session = b""
        if closed:
            return list(owner.destinations)
        owner.until = now + self.settings.resume_grace_s
        return []

    def deadline(self) -> float | None:
        if not self._owners:
            return None
        return min((owner.until for owner in self._owners.values() if owner.until is not None), default=None)

    def due(self, now: float) -> list[int]:
        """Which destinations nobody came back for."""
        gone = [owner for owner in self._owners.values() if owner.until is not None and owner.until <= now]
        return [destination for owner in gone for destination in owner.destinations]
