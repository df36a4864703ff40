"""Agreement among the voters on one log of decisions: Raft, one voter's side.

    FOLLOWER --no leader heard--> PRE_CANDIDATE --a majority would vote--> CANDIDATE --a majority has--> LEADER
        ^                              |                                       |                          |
        └────── a leader is heard, a higher term is seen, or (LEADER) a majority is no longer heard ──────┘

What keeps it safe, and where:

- A voter votes once in a term, and says nothing that depends on its term, vote or log before that is on disk
  (`outbox.send_durable`). Entries may leave a leader before its own disk has them: it counts itself only once it has.
- Votes go to logs that are at least as long (`_is_long_enough`), so a leader has every committed entry.
- An entry of an earlier term is never committed by counting copies, only by a later one of the own term
  (`leading.py`); a new leader's first entry says nothing and does just that. Before it is committed, no voter changes.
- Voters change one at a time, and the change is in force from when it is in the log.
- Pre-votes and the lease (`_has_leader`) keep a voter that was cut off from unseating a leader that a majority hears.
- A voter is its disk (`Voter.store`): whatever is addressed to another disk is not for us.

Without a majority there are only pre-votes, at growing intervals.
"""
from collections import deque
from collections.abc import Callable
from enum import Enum

import msgspec

from angarium.core.groups import protocol as p
from angarium.core.groups.leading import Leading
from angarium.core.groups.log import IDENTITY, TERM, Identity, Log, SnapshotRecord, TermRecord, put
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.records import Voter
from angarium.core.groups.settings import GroupSettings

SNAPSHOT_BYTES_MAX = 64 << 20  # of one that is received; past it the sender is not believed


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Raft:
    def __init__(
        self, me: Voter, cluster: bytes, term: TermRecord, log: Log, outbox: Outbox, settings: GroupSettings,
        jitter: Callable[[], float], *, now: float,
    ) -> None:  # fmt: skip
        self.me = me
        self.cluster = cluster
        self.log = log
        self.term = term.term
        self.vote = term.vote
        self.role = Role.FOLLOWER
        self.leader: Voter | None = None
        self.commit = log.snapshot.index
        self.leading: Leading | None = None
        self.outbox = outbox
        self.settings = settings
        self.is_retired = False  # decided behind our back: nobody sends us the log any more
        self.durable_index = log.last_index
        self._writing: deque[tuple[int, int]] = deque()  # (token, last index that it makes durable)
        self._jitter = jitter
        self._votes: dict[bytes, bool] = {}
        self._attempts = 0  # to be elected, since a leader was heard
        self._incoming: tuple[SnapshotRecord, int, bytearray] | None = None  # without its state, bytes in all, so far
        self._leader_heard_at: float | None = None
        self.earlier_leader = ""  # the node that we followed before we led
        self._election_at = now + self._patience_s()

    @property
    def is_voter(self) -> bool:
        return self.me in self.log.voters and not self.is_retired

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def deadline(self) -> float | None:
        if self.leading is not None:
            return self.leading.deadline()
        return self._election_at if self.is_voter else None

    def tick(self, now: float) -> None:
        if self.leading is not None:
            if not self.leading.tick(now):
                self.step_down(now)
        elif self.is_voter and now >= self._election_at:
            self._stand(now)

    def lagged(self, late_s: float, now: float) -> None:
        """Our own loop stood still. What we did not hear meanwhile is no reason to stand for election; a leader that
        may have been replaced does nothing more in this term."""
        if self.leading is not None and late_s >= self.settings.election_s:
            self.step_down(now)
        self._election_at = max(self._election_at, now + self._patience_s())

    def leader_lost(self, node: str, now: float) -> None:
        """Its process is not there: no need to wait for its silence. All others notice at once: they stand for election
        one after the other, so that they do not divide the votes."""
        if self.leader is not None and self.leader.node == node and not self.is_leader:
            self.leader, self._leader_heard_at = None, None
            before_us = [voter for voter in self.log.voters if voter.node != node and voter < self.me]
            turn_s = self.settings.succeed_s * (len(before_us) + 0.3 * self._jitter())
            self._election_at = min(self._election_at, now + turn_s)

    def receive(self, sender: str, message: Message, *, now: float) -> None:
        match message:
            case p.Append():
                if self._is_for_us(message.to, message.cluster):
                    self._append(sender, message, now)
            case p.AppendAnswer() | p.SnapshotAnswer():
                if message.term > self.term:
                    self._see_term(message.term, now)
                elif self.leading is not None and message.term == self.term:
                    self.leading.answered(message, now)
            case p.VoteAsk():
                if self._is_for_us(message.to, message.cluster):
                    self._vote_ask(sender, message, now)
            case p.VoteAnswer():
                self._vote_answer(message, now)
            case p.SnapshotPart():
                if self._is_for_us(message.to, message.cluster):
                    self._snapshot_part(sender, message, now)
            case p.TransferNow(term, to, cluster):
                if self._is_for_us(to, cluster) and term == self.term and self.is_voter and not self.is_leader:
                    self._campaign(now, is_transfer=True)

    def _is_for_us(self, to: bytes, cluster: bytes) -> bool:
        """A disk that belongs to no cluster yet follows whoever knows it by its id."""
        return to == self.me.store and self.cluster in (cluster, b"")

    def persisted(self, now: float) -> None:
        while self._writing and self.outbox.is_durable(self._writing[0][0]):
            self.durable_index = max(self.durable_index, self._writing.popleft()[1])
        if self.leading is not None:
            self.leading.advance_commit()
        elif self.role is Role.CANDIDATE:
            self._count_votes(now)

    # -- writing -------------------------------------------------------------------------------------

    def append_own(self, entries: list[p.Entry]) -> None:
        self.outbox.write(self.log.append(entries))
        self._writing.append((self.outbox.token, self.log.last_index))

    def _truncate(self, first: int) -> None:
        assert first > self.commit, f"entry {first} is committed (up to {self.commit}) and cannot change"
        self.outbox.write(self.log.truncate(first))
        self.durable_index = min(self.durable_index, first - 1)
        self._writing = deque((token, min(index, first - 1)) for token, index in self._writing)

    def _set_term(self, term: int, vote: bytes) -> None:
        self.term, self.vote = term, vote
        self.outbox.write([put(TERM, TermRecord(term, vote))])

    def _bind(self, cluster: bytes) -> None:
        if self.cluster != cluster:
            self.cluster = cluster
            self.outbox.write([put(IDENTITY, Identity(self.me.store, cluster))])

    def found(self, first: bytes, now: float) -> None:
        """The first entry of all, of no leader's term; the founder stands for election at once."""
        self._bind(self.me.store)
        self.append_own([p.Entry(0, 1, first)])
        self._election_at = now

    # -- elections -----------------------------------------------------------------------------------

    def _patience_s(self) -> float:
        return self.settings.election_s * (1 + self._jitter())

    def _has_leader(self, now: float) -> bool:
        """Within the shortest time after which anybody stands for election. Until then we elect nobody else."""
        if self.leading is not None:
            return True
        return self._leader_heard_at is not None and now - self._leader_heard_at < self.settings.election_s

    def _stand(self, now: float) -> None:
        self._become(Role.PRE_CANDIDATE, None)
        wait_s = min(self.settings.beacon_s_max, self.settings.beacon_s_min * 2**self._attempts)
        self._attempts = min(self._attempts + 1, 10)
        self._election_at = now + wait_s * (0.7 + 0.6 * self._jitter())
        self._votes = {self.me.store: True}
        self._ask_votes(self.term + 1, is_pre=True, is_transfer=False)
        self._count_votes(now)

    def _campaign(self, now: float, *, is_transfer: bool = False) -> None:
        self._become(Role.CANDIDATE, None)
        self._set_term(self.term + 1, self.me.store)
        self._election_at = now + self.settings.beacon_s_min * (1 + 2 * self._jitter())
        self._votes = {}  # our own counts when it is on disk
        self._ask_votes(self.term, is_pre=False, is_transfer=is_transfer)

    def _ask_votes(self, term: int, *, is_pre: bool, is_transfer: bool) -> None:
        for voter in self.log.voters:
            if voter != self.me:
                self.outbox.send_durable(voter.node, p.VoteAsk(
                    term, self.me, voter.store, self.cluster, self.log.last_term, self.log.last_index, is_pre,
                    is_transfer))  # fmt: skip

    def _vote_ask(self, sender: str, ask: p.VoteAsk, now: float) -> None:
        if self._has_leader(now) and not ask.is_transfer:
            if ask.term > self.term and not ask.is_pre:
                return  # it will hear of the leader, or we shall lose it
            self._answer_vote(sender, ask, is_granted=False)
            return
        if ask.is_pre:
            self._answer_vote(sender, ask, is_granted=ask.term > self.term and self._is_long_enough(ask))
            return
        if ask.term > self.term:
            self._see_term(ask.term, now)
        is_free = self.vote in (b"", ask.candidate.store)
        is_granted = ask.term == self.term and is_free and self._is_long_enough(ask)
        if is_granted:
            if not self.vote:
                self._set_term(self.term, ask.candidate.store)
            self._election_at = now + self._patience_s()
        self._answer_vote(sender, ask, is_granted=is_granted)

    def _is_long_enough(self, ask: p.VoteAsk) -> bool:
        return (ask.last_term, ask.last_index) >= (self.log.last_term, self.log.last_index)

    def _answer_vote(self, sender: str, ask: p.VoteAsk, *, is_granted: bool) -> None:
        term = ask.term if is_granted else self.term
        self.outbox.send_durable(sender, p.VoteAnswer(term, self.me.store, is_granted, ask.is_pre))

    def _vote_answer(self, answer: p.VoteAnswer, now: float) -> None:
        if answer.term > self.term and not (answer.is_pre and answer.is_granted):
            self._see_term(answer.term, now)
            return
        expected = Role.PRE_CANDIDATE if answer.is_pre else Role.CANDIDATE
        asked = self.term + 1 if answer.is_pre else self.term
        if self.role is expected and (answer.term == asked or not answer.is_granted):
            self._votes[answer.voter] = answer.is_granted
            self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        votes = dict(self._votes)
        if self.role is Role.CANDIDATE and self.outbox.is_durable(self.outbox.token):
            votes[self.me.store] = True
        granted = sum(votes.get(voter.store, False) for voter in self.log.voters)
        if granted * 2 <= len(self.log.voters):
            return
        if self.role is Role.PRE_CANDIDATE:
            self._campaign(now)
        elif self.role is Role.CANDIDATE:
            self._become(Role.LEADER, self.me)
            self._attempts = 0
            self.leading = Leading(self, now)
            self.leading.begin(now)

    def _see_term(self, term: int, now: float) -> None:
        """Somebody is further: we follow, though not yet whom."""
        self._set_term(term, b"")
        self.step_down(now)

    def step_down(self, now: float) -> None:
        if self.role is not Role.FOLLOWER:
            self._election_at = now + self._patience_s()
        self._become(Role.FOLLOWER, None)

    def _become(self, role: Role, leader: Voter | None) -> None:
        self.role = role
        self.leader = leader
        self.leading = None

    # -- following -----------------------------------------------------------------------------------

    def _follow(self, leader: Voter, term: int, cluster: bytes, now: float) -> None:
        self._bind(cluster)
        if term > self.term:
            self._set_term(term, b"")
        self._become(Role.FOLLOWER, leader)
        self.earlier_leader = leader.node
        self._attempts = 0
        self._leader_heard_at = now
        self._election_at = now + self._patience_s()

    def _append(self, sender: str, append: p.Append, now: float) -> None:
        if append.term < self.term:
            self.outbox.send_durable(sender, p.AppendAnswer(self.term, self.me.store, False, 0, append.stamp))
            return
        assert self.leading is None or append.term > self.term, f"two leaders in term {self.term}"
        self._follow(append.leader, append.term, append.cluster, now)
        match = self._match(append)
        if match is None:
            hint = self._hint(append.previous_index)
            self.outbox.send_durable(sender, p.AppendAnswer(self.term, self.me.store, False, hint, append.stamp))
            return
        self.commit = max(self.commit, min(append.commit, match))
        self.outbox.send_durable(sender, p.AppendAnswer(self.term, self.me.store, True, match, append.stamp))

    def _match(self, append: p.Append) -> int | None:
        """Take the entries over; up to where the logs are equal now, or None if the entry before does not match."""
        last = append.previous_index + len(append.entries)
        # What is committed is equal by itself, also where it is in a snapshot and cannot be compared.
        if append.previous_index > self.commit and self.log.term_at(append.previous_index) != append.previous_term:
            return None
        for number, entry in enumerate(append.entries):
            if entry.index <= self.commit:
                continue
            if self.log.term_at(entry.index) == entry.term:
                continue
            if entry.index <= self.log.last_index:
                self._truncate(entry.index)
            self.append_own(list(append.entries[number:]))
            break
        return last

    def _hint(self, index: int) -> int:
        """Where the leader should look next: at our end, or before all entries of the term that does not match."""
        if index > self.log.last_index:
            return self.log.last_index
        index -= 1
        term = self.log.term_at(index)
        while index > self.commit and term is not None and self.log.term_at(index) == term:
            index -= 1
        return max(index, self.commit)

    # -- snapshots -----------------------------------------------------------------------------------

    def _snapshot_part(self, sender: str, part: p.SnapshotPart, now: float) -> None:
        if part.term < self.term or part.total_bytes > SNAPSHOT_BYTES_MAX:
            self.outbox.send_durable(sender, p.SnapshotAnswer(self.term, self.me.store, part.index, 0, part.stamp))
            return
        self._follow(part.leader, part.term, part.cluster, now)
        wanted = part.total_bytes  # if we have it all already
        if part.index > self.commit:
            wanted = self._collect(part)
        answer = p.SnapshotAnswer(self.term, self.me.store, part.index, wanted, part.stamp)
        self.outbox.send_durable(sender, answer)

    def _collect(self, part: p.SnapshotPart) -> int:
        """The offset that is wanted next."""
        head = SnapshotRecord(part.index, part.last_term, b"")
        if self._incoming is None or self._incoming[:2] != (head, part.total_bytes):
            self._incoming = (head, part.total_bytes, bytearray())
        collected = self._incoming[2]
        if part.offset == len(collected):
            collected += part.data
        if len(collected) < part.total_bytes:
            return len(collected)
        self._incoming = None
        self.outbox.write(self.log.install(msgspec.structs.replace(head, state=bytes(collected))))
        self.commit = part.index
        self.durable_index = min(self.durable_index, self.log.last_index)
        self._writing = deque([(self.outbox.token, self.log.last_index)])
        return part.total_bytes
