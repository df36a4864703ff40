"""Whom a node talks to: who leads, as far as it knows, and where its heartbeats go.

A voter knows the leader from the log's messages, any other node from the voter that feeds it. A voter that hears of no
leader for long takes a feed, too: it may have been removed while it was away, and nobody sends it the log any more.
"""
from angarium.core.groups import protocol as p
from angarium.core.groups.events import LeaderChanged
from angarium.core.groups.feeding import Subscription
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import Raft
from angarium.core.groups.records import State
from angarium.core.groups.settings import GroupSettings


class Contacts:
    def __init__(
        self, me: str, incarnation: bytes, seeds: tuple[str, ...], subscription: Subscription, outbox: Outbox,
        settings: GroupSettings,
    ) -> None:  # fmt: skip
        self.leader = ""  # empty: none is known
        self.raft: Raft | None = None
        self._me = me
        self._incarnation = incarnation
        self._voters = seeds
        self._subscription = subscription
        self._outbox = outbox
        self._settings = settings
        self._term = 0  # the highest that we were told of
        self._seen: tuple[str, int] | None = None  # the leader and the term, as raft last said
        self._led_at = 0.0  # when raft last knew a leader
        self._beat_at = 0.0
        self._turn = 0

    def start(self, raft: Raft | None, now: float) -> None:
        self.raft = raft
        self._led_at = self._beat_at = now

    def set_voters(self, voters: tuple[str, ...]) -> None:
        self._voters = voters or self._voters
        self._subscription.set_voters(voters)

    # -- the leader ------------------------------------------------------------------------------------

    def is_current(self, term: int) -> bool:
        """Whether who says that it leads in this term may still do so; noted if it does."""
        highest = max(self._term, 0 if self.raft is None else self.raft.term)
        self._term = max(self._term, term)
        return term >= highest

    def beat(self, sender: str, beat: p.Beat, now: float) -> None:
        self._subscription.beat(sender, beat, now)
        is_led = self.raft is not None and self.raft.is_voter and self.raft.leader is not None
        if beat.term >= self._term and not is_led:
            self._set_leader(beat.leader, beat.term, now)

    def see_raft(self, now: float) -> None:
        """What has changed there is news; what has not may be older than what we were told."""
        raft = self.raft
        seen = None
        if raft is not None and raft.is_voter:
            seen = ("" if raft.leader is None else raft.leader.node, raft.term)
            self._led_at = self._led_at if raft.leader is None else now
        if seen is not None and seen != self._seen:
            self._set_leader(*seen, now)
        self._seen = seen

    def _set_leader(self, leader: str, term: int, now: float) -> None:
        if leader and not self.leader:
            self._beat_at = now
        if (leader, term) != (self.leader, self._term) and (leader or self.leader):
            self._outbox.add(LeaderChanged(leader, term))
        self.leader, self._term = leader, max(term, self._term)

    def to_leader(self, message: Message) -> None:
        """To the leader, or through a voter."""
        to = self.leader
        if not to:
            others = [name for name in self._voters if name != self._me]
            if not others:
                return
            self._turn += 1
            to = self._subscription.voter or others[self._turn % len(others)]
        self._outbox.send_durable(to, message)

    # -- heartbeats ------------------------------------------------------------------------------------

    def deadline(self, now: float) -> float | None:
        times = []
        if self.leader and self.leader != self._me:
            times.append(self._beat_at)
        if self._wants_feed(now):
            times.append(self._subscription.deadline())
        elif self.raft is not None and self.raft.leader is None:
            times.append(self._led_at + 3 * self._settings.election_s)
        return min(times, default=None)

    def tick(self, state: State, now: float) -> None:
        subscription = self._subscription
        is_fed = self._wants_feed(now)
        if is_fed and subscription.contact(now):
            self.heartbeat(subscription.voter, state, wants_feed=True)
        if now >= self._beat_at:
            self._beat_at = now + self._settings.heartbeat_s
            if self.leader and self.leader != self._me and not (is_fed and self.leader == subscription.voter):
                self.heartbeat(self.leader, state, wants_feed=False)

    def _wants_feed(self, now: float) -> bool:
        if self.raft is None or not self.raft.is_voter:
            return True
        return self.raft.leader is None and now >= self._led_at + 3 * self._settings.election_s

    def heartbeat(self, to: str, state: State, *, wants_feed: bool) -> None:
        progress = self._subscription.progress
        beat = p.Heartbeat(self._me, self._incarnation, state.view_id, state.index, wants_feed, *progress)
        self._outbox.send(to, beat)
