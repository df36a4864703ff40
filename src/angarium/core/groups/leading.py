"""What a leader knows of the others, and what it does in its term: replicate, commit, make sure that it is still heard.

For each other voter, and for nodes that are to become one: how far its log is equal to ours (`match`), what it is sent
next, when it was last heard. "Heard" is when the message left that it answered, not when the answer came: an answer
may have been under way for long.
"""
from dataclasses import dataclass
from typing import TYPE_CHECKING

from angarium.core.groups import protocol as p
from angarium.core.groups.decisions import Decision, Nothing, VotersSet, encode_decision
from angarium.core.groups.records import Voter

if TYPE_CHECKING:
    from angarium.core.groups.raft import Raft


@dataclass(slots=True)
class Progress:
    voter: Voter
    next_index: int
    match: int = 0
    heard_at: float = float("-inf")  # when the last message left that it answered
    snapshot_index: int = 0  # of the snapshot that it is sent; 0: none
    snapshot_offset: int = 0
    commit_sent: int = 0


class Leading:
    def __init__(self, raft: "Raft", now: float) -> None:
        self._raft = raft
        self._log = raft.log
        self._settings = raft.settings
        self._heartbeat_at = now
        self._since = now
        self.first_index = raft.log.last_index + 1  # of our own entries
        self.learners: dict[bytes, Voter] = {}  # get the log, and do not vote yet
        self.transfer_to: Voter | None = None
        self._transfer_until = 0.0
        self._progress: dict[bytes, Progress] = {}

    def begin(self, now: float) -> None:
        self._write(Nothing())
        self._tend(now)
        self.advance_commit()

    @property
    def is_ready(self) -> bool:
        """Everything that was decided before is committed here, too: from now on decisions can be based on it."""
        return self._raft.commit >= self.first_index

    def deadline(self) -> float:
        return self._heartbeat_at

    def tick(self, now: float) -> bool:
        """False: a majority has not been heard for too long, and we lead no more."""
        if not self._is_heard(now):
            return False
        if self.transfer_to is not None and now >= self._transfer_until:
            self.transfer_to = None
        if now >= self._heartbeat_at:
            self._tend(now)
        return True

    def _tend(self, now: float) -> None:
        """Something for everybody, at least once in a heartbeat."""
        self._heartbeat_at = now + self._settings.heartbeat_s
        for progress in self._followers():
            self._send(progress, now, is_heartbeat=True)

    def _followers(self) -> list[Progress]:
        others = {voter.store: voter for voter in self._log.voters if voter != self._raft.me} | self.learners
        for store in [store for store in self._progress if store not in others]:
            del self._progress[store]
        for store, voter in others.items():
            if store not in self._progress:
                self._progress[store] = Progress(voter, self._log.last_index + 1)
        return list(self._progress.values())

    def _is_heard(self, now: float) -> bool:
        """At first everybody has the time to answer."""
        return now - self._since < self._settings.election_s or self.is_majority_heard(self._log.voters, now)

    def is_majority_heard(self, voters: tuple[Voter, ...], now: float) -> bool:
        limit, heard = now - self._settings.election_s, 0
        for voter in voters:
            progress = self._progress.get(voter.store)
            heard += voter == self._raft.me or (progress is not None and progress.heard_at >= limit)
        return heard * 2 > len(voters)

    # -- proposals -------------------------------------------------------------------------------------

    def propose(self, decision: Decision, now: float) -> int:
        """The index that it has if it is decided."""
        index = self._write(decision)
        for progress in self._followers():
            self._send(progress, now)
        self.advance_commit()
        return index

    def _write(self, decision: Decision) -> int:
        index = self._log.last_index + 1
        self._raft.append_own([p.Entry(self._raft.term, index, encode_decision(decision))])
        return index

    @property
    def may_change_voters(self) -> bool:
        """One change at a time, and none before an entry of our own term is committed: else two leaders may each have a
        majority of its own voters."""
        return self.is_ready and self._log.voters_index <= self._raft.commit

    def change_voters(self, voters: tuple[Voter, ...], now: float) -> int:
        assert self.may_change_voters
        for voter in voters:
            self.learners.pop(voter.store, None)
        return self.propose(VotersSet(voters), now)

    def is_caught_up(self, voter: Voter) -> bool:
        progress = self._progress.get(voter.store)
        return progress is not None and progress.match >= self._raft.commit

    # -- replication -----------------------------------------------------------------------------------

    def _send(
        self, progress: Progress, now: float, *, is_heartbeat: bool = False, entries_max: int | None = None
    ) -> None:
        if progress.next_index < self._log.first_index:
            if is_heartbeat or progress.snapshot_index != self._log.snapshot.index:
                self._send_snapshot(progress, now)
            return
        ahead = progress.next_index - progress.match - 1
        count = min(self._settings.append_entries_max, max(0, self._settings.append_ahead_max - ahead))
        count = count if entries_max is None else entries_max
        entries = self._log.slice(
            progress.next_index, entries_max=count, bytes_max=self._settings.append_bytes_max
        ) if count else ()  # fmt: skip
        if not entries and not is_heartbeat:
            return
        previous = progress.next_index - 1
        term = self._log.term_at(previous)
        assert term is not None
        raft = self._raft
        raft.outbox.send(progress.voter.node, p.Append(
            raft.term, raft.me, progress.voter.store, raft.cluster, previous, term, entries, raft.commit, now
        ))  # fmt: skip
        progress.next_index += len(entries)
        progress.commit_sent = raft.commit

    def tell_commit(self, now: float) -> None:
        """What was decided is told at once, not with the next heartbeat."""
        for progress in self._progress.values():
            if progress.commit_sent < self._raft.commit:
                self._send(progress, now, is_heartbeat=True)

    def _send_snapshot(self, progress: Progress, now: float) -> None:
        snapshot, raft = self._log.snapshot, self._raft
        progress.commit_sent = raft.commit
        if progress.snapshot_index != snapshot.index:
            progress.snapshot_index, progress.snapshot_offset = snapshot.index, 0
        offset = progress.snapshot_offset
        data = snapshot.state[offset : offset + self._settings.snapshot_part_bytes]
        raft.outbox.send(progress.voter.node, p.SnapshotPart(
            raft.term, raft.me, progress.voter.store, raft.cluster, snapshot.index, snapshot.term,
            len(snapshot.state), offset, data, now
        ))  # fmt: skip

    def answered(self, answer: p.AppendAnswer | p.SnapshotAnswer, now: float) -> None:
        progress = self._progress.get(answer.voter)
        if progress is None:
            return
        progress.heard_at = max(progress.heard_at, answer.stamp)
        if isinstance(answer, p.SnapshotAnswer):
            self._snapshot_answered(progress, answer, now)
        elif answer.is_match:
            progress.match = max(progress.match, answer.index)
            progress.next_index = max(progress.next_index, progress.match + 1)
            progress.snapshot_index = 0
            self.advance_commit()
            self._send(progress, now)
        elif max(answer.index, progress.match) + 1 < progress.next_index:
            # Only a question, without entries: should it not match either, nothing is sent before the next heartbeat.
            progress.next_index = max(answer.index, progress.match) + 1
            self._send(progress, now, is_heartbeat=True, entries_max=0)
        self._hand_over_if_due()

    def _snapshot_answered(self, progress: Progress, answer: p.SnapshotAnswer, now: float) -> None:
        snapshot = self._log.snapshot
        if answer.index != progress.snapshot_index or answer.index != snapshot.index:
            return
        if answer.offset >= len(snapshot.state):
            progress.match = max(progress.match, answer.index)
            progress.next_index = max(progress.next_index, progress.match + 1)
            progress.snapshot_index = 0
            self.advance_commit()
            self._send(progress, now, is_heartbeat=True)
        elif answer.offset != progress.snapshot_offset:
            progress.snapshot_offset = answer.offset
            self._send_snapshot(progress, now)

    def advance_commit(self) -> None:
        """What a majority has on disk, if it is of our own term: an earlier one may still be overwritten."""
        raft, voters = self._raft, self._log.voters
        matches = sorted(
            raft.durable_index if voter == raft.me else self._match_of(voter) for voter in voters
        )  # fmt: skip
        if not matches:
            return
        index = matches[(len(matches) - 1) // 2]  # so many or more of a majority
        if index > raft.commit and self._log.term_at(index) == raft.term:
            raft.commit = index

    def _match_of(self, voter: Voter) -> int:
        progress = self._progress.get(voter.store)
        return 0 if progress is None else progress.match

    # -- transfer --------------------------------------------------------------------------------------

    def transfer(self, to: Voter | None, now: float) -> Voter | None:
        """Let another lead; None if nobody can. Meanwhile nothing is proposed."""
        others = [f for f in self._followers() if f.voter in self._log.voters and to in (None, f.voter)]
        if not others:
            return None
        best = max(others, key=lambda f: (f.match, f.heard_at))
        self.transfer_to = best.voter
        self._transfer_until = now + self._settings.transfer_s
        self._hand_over_if_due()
        return best.voter

    def _hand_over_if_due(self) -> None:
        if self.transfer_to is not None and self._match_of(self.transfer_to) == self._log.last_index:
            raft = self._raft
            raft.outbox.send(self.transfer_to.node, p.TransferNow(raft.term, self.transfer_to.store, raft.cluster))
