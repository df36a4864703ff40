"""How nodes that do not vote learn what is decided: each takes it from one voter, and from another when that is gone.

    node --Heartbeat(applied, wants_feed)--> voter --Beat(leader)--> node     every heartbeat
                                             voter --Feed(decisions)-->       as they are decided
                                             voter --FeedPart(snapshot)-->    to a node that is far behind

The node's heartbeat says how far it is, so a lost message is noticed by the next one. Parts of a snapshot are asked for
one by one. All that a node knows as voters may have been replaced while it was away: one that votes no more names
those who do, and where they are.
"""
from collections.abc import Callable
from dataclasses import dataclass

from angarium.core.groups import protocol as p
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import SNAPSHOT_BYTES_MAX, Raft
from angarium.core.groups.records import State, decode_state
from angarium.core.groups.settings import GroupSettings

TOLD_MAX = 16  # voters that a neighbour may name


@dataclass(slots=True)
class Subscriber:
    incarnation: bytes
    next_index: int
    applied: int
    heard_at: float


class Feeder:
    """A voter's side."""

    def __init__(
        self, raft: Raft, outbox: Outbox, settings: GroupSettings, voters: Callable[[], tuple[tuple[str, str], ...]]
    ) -> None:
        self._raft = raft
        self._voters = voters  # as this node knows them, with their addresses
        self._outbox = outbox
        self._settings = settings
        self._subscribers: dict[str, Subscriber] = {}
        self._heard: dict[str, tuple[bytes, float]] = {}  # node -> incarnation, when
        self._fed = 0  # index up to which everybody was told

    def heartbeat(self, beat: p.Heartbeat, now: float) -> None:
        self._heard[beat.node] = (beat.incarnation, now)
        if not beat.wants_feed:
            return
        raft = self._raft
        subscriber = self._subscribers.get(beat.node)
        is_full = subscriber is None and len(self._subscribers) >= self._settings.subscribers_max
        leader = "" if raft.leader is None else raft.leader.node
        voters = () if raft.is_voter else self._voters()
        self._outbox.send(beat.node, p.Beat(leader, raft.term, raft.commit, is_full or not raft.is_voter, voters))
        if is_full or not raft.is_voter:
            return
        if subscriber is None or subscriber.incarnation != beat.incarnation:
            subscriber = Subscriber(beat.incarnation, beat.applied + 1, -1, now)
            self._subscribers[beat.node] = subscriber
        if beat.applied == subscriber.applied or beat.applied >= subscriber.next_index:
            subscriber.next_index = beat.applied + 1  # what was sent since has not arrived
        subscriber.applied, subscriber.heard_at = beat.applied, now
        if subscriber.next_index < raft.log.first_index:
            self._send_part(beat)
        else:
            self._feed(beat.node, subscriber)

    def _send_part(self, beat: p.Heartbeat) -> None:
        snapshot = self._raft.log.snapshot
        offset = beat.snapshot_offset if beat.snapshot_index == snapshot.index else 0
        data = snapshot.state[offset : offset + self._settings.snapshot_part_bytes]
        self._outbox.send(beat.node, p.FeedPart(snapshot.index, len(snapshot.state), offset, data))

    def _feed(self, node: str, subscriber: Subscriber) -> None:
        raft, first = self._raft, subscriber.next_index
        if not raft.log.first_index <= first <= raft.commit:
            return
        entries = raft.log.slice(
            first, entries_max=self._settings.append_entries_max, bytes_max=self._settings.append_bytes_max,
            last=raft.commit,
        )  # fmt: skip
        self._outbox.send(node, p.Feed(first, tuple(entry.data for entry in entries)))
        subscriber.next_index = first + len(entries)

    def push(self, now: float) -> None:
        """Something was decided."""
        if self._raft.commit <= self._fed:
            return
        self._fed = self._raft.commit
        for node in list(self._subscribers):
            subscriber = self._subscribers[node]
            if now - subscriber.heard_at > 2 * self._settings.suspect_after_s:
                del self._subscribers[node]
            else:
                self._feed(node, subscriber)

    def forget(self, state: State) -> None:
        """Nodes that are gone are not remembered."""
        names = {node.name for node in state.nodes}
        self._heard = {name: heard for name, heard in self._heard.items() if name in names}

    def heard_age_s(self, node: str, incarnation: bytes, now: float) -> float | None:
        found = self._heard.get(node)
        return now - found[1] if found is not None and found[0] == incarnation else None


class Subscription:
    """The side of the node that is told."""

    def __init__(self, me: str, seeds: tuple[str, ...], settings: GroupSettings, jitter: Callable[[], float]) -> None:
        self._me = me
        self._settings = settings
        self._turn = int(jitter() * 1_000)  # spreads the nodes over the voters
        self._voters = seeds
        self._told: tuple[str, ...] = ()  # who votes, as one says that does not any more
        self._jitter = jitter
        self.voter = ""  # whom we take it from
        self._heard_at = 0.0
        self._led_at = 0.0  # when it last knew a leader
        self._attempts = 0
        self._contact_at = 0.0
        self._incoming: tuple[int, int, bytearray] | None = None  # index, bytes in all, so far

    @property
    def progress(self) -> tuple[int, int]:
        """Index of the snapshot that is on its way, and the offset that is wanted."""
        return (0, 0) if self._incoming is None else (self._incoming[0], len(self._incoming[2]))

    def deadline(self) -> float:
        return self._contact_at

    def set_voters(self, voters: tuple[str, ...]) -> None:
        self._voters = tuple(name for name in voters if name != self._me) or self._voters

    def lagged(self, now: float) -> None:
        self._heard_at = self._led_at = now

    def lost(self, node: str, now: float) -> None:
        if node == self.voter:
            self.voter, self._contact_at = "", now

    def contact(self, now: float) -> bool:
        """Whether a heartbeat to `voter` is due; chooses another voter if this one is silent, or hears no leader."""
        if now < self._contact_at:
            return False
        settings = self._settings
        is_silent = now - self._heard_at > settings.suspect_after_s
        if not self.voter or is_silent or now - self._led_at > 2 * settings.election_s:
            others = [name for name in dict.fromkeys((*self._voters, *self._told)) if name != self._me]
            if not others:
                self._contact_at = now + settings.beacon_s_max
                return False
            self._turn += 1
            self.voter = others[self._turn % len(others)]
            wait_s = min(settings.beacon_s_max, settings.beacon_s_min * 2 ** (self._attempts // len(others)))
            self._attempts = min(self._attempts + 1, 100)
            self._contact_at = now + wait_s * (0.7 + 0.6 * self._jitter())
            self._heard_at = self._contact_at - settings.suspect_after_s  # it has until then
            self._led_at = self._contact_at - 2 * settings.election_s
            return True
        self._contact_at = now + settings.heartbeat_s
        return True

    def heard(self, sender: str, now: float) -> None:
        if sender == self.voter:
            self._heard_at = now

    def beat(self, sender: str, beat: p.Beat, now: float) -> None:
        if sender != self.voter:
            return
        if beat.is_full:
            self.voter = ""
            self._told = tuple(name for name, _ in beat.voters[:TOLD_MAX])
            return
        self._heard_at = now
        if beat.leader:
            self._led_at = now
            if self._attempts:
                self._attempts = 0
                self._contact_at = now + self._settings.heartbeat_s

    def part(self, part: p.FeedPart, applied: int) -> State | None:
        """The state, when the last part has come."""
        if part.index <= applied or part.total_bytes > SNAPSHOT_BYTES_MAX:
            return None
        if self._incoming is None or self._incoming[:2] != (part.index, part.total_bytes):
            self._incoming = (part.index, part.total_bytes, bytearray())
        collected = self._incoming[2]
        if part.offset == len(collected):
            collected += part.data
        if len(collected) < part.total_bytes:
            return None
        self._incoming = None
        return decode_state(bytes(collected))
