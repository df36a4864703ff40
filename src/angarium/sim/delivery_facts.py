"""What the ledger knows of subscriptions and their consumers: what was sent, seen, held, settled. Facts, no judgement;
that is in `holdings.py`."""
from dataclasses import dataclass, field
from typing import NamedTuple

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.ranges import Range
from angarium.core.wire.frames import Outcome
from angarium.sim.messages import LogFacts

FIRST_SEND = -1
Stream = tuple[bytes, int, str | None]  # producer, lane, message group: what keeps its order


class Send(NamedTuple):
    """One delivery, as it left the broker."""

    start: int  # of the broker
    number: int


NEVER = Send(0, 0)


@dataclass(slots=True, eq=False)
class Hold:
    is_owed: bool = False  # settled by the application, not known to be answered
    is_forfeited: bool = False  # its session was away for the grace time: others may have the position


@dataclass(slots=True, eq=False)
class SubscriptionFacts:
    log: LogFacts
    name: str
    is_durable: bool
    selector: str = ""  # of a topic's
    is_shared: bool = False
    is_divided: bool = False  # by selectors of its consumers: then what a group's owner leaves may go to others first
    starts_after: float = -1.0  # what was confirmed before is not for it
    opened_at: float | None = None  # when the broker first said so
    is_ending: bool = False  # its application has asked to unsubscribe
    sent: dict[int, int] = field(default_factory=dict)  # position -> last write asked for when it was sent again
    first_to: dict[int, ConsumerKey] = field(default_factory=dict)
    first_in: dict[int, int] = field(default_factory=dict)  # the start of the broker that was first to send it
    late: set[int] = field(default_factory=set)  # sent by a manager that had been replaced
    seen: dict[int, Send] = field(default_factory=dict)  # position -> the last of its sends that reached an application
    finished: set[int] = field(default_factory=set)  # settled or rejected by an application, answered or not
    settled: dict[int, Outcome] = field(default_factory=dict)  # and answered: final
    settled_in: dict[int, int] = field(default_factory=dict)  # the start of the broker that answered so
    holds: dict[int, dict[ConsumerKey, Hold]] = field(default_factory=dict)

    def drop(self, key: ConsumerKey, low: int, high: int) -> None:
        for position in range(low, high):
            holders = self.holds.get(position)
            if holders is not None and holders.pop(key, None) is not None and not holders:
                del self.holds[position]

    def drop_all(self, key: ConsumerKey) -> None:
        for position in [position for position, holders in self.holds.items() if key in holders]:
            self.drop(key, position, position + 1)

    def held_by(self, key: ConsumerKey) -> list[tuple[int, Hold]]:
        return [(position, holders[key]) for position, holders in self.holds.items() if key in holders]


@dataclass(slots=True, eq=False)
class ConsumerFacts:
    key: ConsumerKey
    destination: int
    subscription: SubscriptionFacts
    ready_at: float | None = None  # when its application first learnt that it is open
    away_since: float | None = None
    was_here: bool = False  # when the manager before the present one was replaced
    was_away: bool = False  # for the grace time, at least once
    forfeits_until: int = 0  # the last send before that: what arrives from before it is forfeited already
    is_gone: bool = False  # closed, or its client is
    is_refused: bool = False  # its last opening was: what it says since is ignored
    sends: dict[int, Send] = field(default_factory=dict)  # position -> when it was last sent here
    last: dict[Stream, int] = field(default_factory=dict)  # the last sequence among first deliveries
    late: dict[int, int] = field(default_factory=dict)  # position -> what replaced the manager that sent it first
    late_last: dict[tuple[int, Stream], int] = field(default_factory=dict)  # the last sequence among those
    lost: set[int] = field(default_factory=set)  # as the broker said when it last opened
    settles: dict[int, tuple[Outcome, list[Range]]] = field(default_factory=dict)  # as the message manager got them
    answered: int = 0  # the last of them
    dropped: int = 0  # messages that it was told it lost
