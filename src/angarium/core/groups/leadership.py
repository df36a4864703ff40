"""What a leader does besides leading the log: it hears requests, watches nodes, judges groups, keeps up the voters.

It lives as long as the term: nothing of it is remembered, and a new leader starts afresh from the decided state. It
acts only when everything decided before is applied here (`is_ready`), and everything it decides goes through the log.
"""
from collections.abc import Callable

from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.groups import messages as m
from angarium.core.groups import protocol as p
from angarium.core.groups.judging import Judge, is_primary_here
from angarium.core.groups.leading import Leading
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import Raft
from angarium.core.groups.records import NodeRecord, State, Voter
from angarium.core.groups.settings import GroupSettings
from angarium.core.groups.watching import Named, Watch
from angarium.core.report import Level, Report

Answered = Callable[[str, str, int], None]  # code, reason, index


class Leadership:
    def __init__(self, me: str, raft: Raft, outbox: Outbox, settings: GroupSettings, *, now: float) -> None:
        assert raft.leading is not None
        self.term = raft.term
        self._me = me
        self._raft = raft
        self._leading: Leading = raft.leading
        self._outbox = outbox
        self._settings = settings
        self._now = now
        self._watch = Watch(me, raft.earlier_leader, settings)
        self._judge = Judge(raft.term, outbox, settings, self._propose_plain, now=now)
        self._pending: dict[int, Answered | None] = {}  # index -> whom to tell what became of it
        self._joining: dict[str, int] = {}  # node -> index of the decision under way
        self._arrivals: dict[str, tuple[int, str, p.JoinAsk]] = {}  # node -> nonce of the question whether it is there
        self._nonce = raft.term << 32
        self._is_watching = False

    def deadline(self) -> float | None:
        times = [time for time in (self._watch.deadline(), self._judge.deadline()) if time is not None]
        return min(times, default=None) if self._is_watching else None

    def tick(self, state: State, now: float) -> None:
        self._now = now
        if not self._leading.is_ready or state.index < self._leading.first_index:
            return
        if not self._is_watching:
            self._is_watching = True
        self._watch.take(state, now)
        asked, gone = self._watch.tick(now)
        self._verify(asked)
        if gone:
            self._propose_plain(d.NodesGone(tuple(gone), "failed"))
            listed = ", ".join(name for name, _ in gone)
            self._outbox.add(Report(Level.WARNING, "nodes-gone", f"not heard any more: {listed}"))
        self._judge.tick(state, now)
        self._keep_up_voters(state, now)

    def lagged(self, now: float) -> None:
        self._watch.lagged(now)

    # -- proposals -----------------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return self._leading.transfer_to is not None or len(self._pending) >= self._settings.proposals_max

    def _propose_plain(self, decision: d.Decision) -> None:
        if not self._is_busy:
            self._pending[self._leading.propose(decision, self._now)] = None

    def _propose(self, decision: d.Decision, answered: Answered) -> None:
        if len(d.encode_decision(decision)) > self._settings.decision_bytes_max:
            limit = self._settings.decision_bytes_max
            answered("too-long", f"{type(decision).__name__}: more than decision_bytes_max {limit:,} bytes", 0)
        elif self._is_busy:
            answered("busy", "too much is undecided, or another is about to lead; ask again", 0)
        else:
            self._pending[self._leading.propose(decision, self._now)] = answered

    def applied(self, index: int, refusal: Rejected | None) -> None:
        answered = self._pending.pop(index, None)
        self._joining = {name: at for name, at in self._joining.items() if at > index}
        if answered is not None:
            answered(*(("", "") if refusal is None else (refusal.code, refusal.reason)), index)

    # -- requests --------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message, state: State, now: float) -> None:
        """`sender`: from whom it comes first, and who is answered."""
        self._now = now
        match message:
            case p.Heartbeat(node, incarnation) | p.Pong(node, incarnation):
                self._watch.heard(node, incarnation, now)
                if isinstance(message, p.Pong):
                    self._is_there(message)
            case p.HeardAnswer(node, incarnation, age_s):
                text = self._watch.vouched(sender, node, incarnation, age_s, now)
                if text:
                    self._outbox.add(Report(Level.WARNING, "half-heard", text))
            case p.LostReport(node, incarnation, is_refused):
                self.neighbour_lost(node, incarnation, is_refused=is_refused, now=now)
        if not self._leading.is_ready or state.index < self._leading.first_index:
            return  # they will ask again
        match message:
            case p.JoinAsk():
                self._join(sender, message, state)
            case p.LeaveAsk(node, incarnation):
                if state.is_here(node, incarnation):
                    self._propose_plain(d.NodesGone(((node, incarnation),), "left"))
            case p.Ask():
                self._ask(sender, message, state)
            case m.Fenced():
                self._judge.fenced(state, message, now)
            case m.HandOverReady():
                self._judge.handed_over(state, message, now)
            case m.ShrinkAsk() | m.AdmitAsk():
                self._change(sender, message, state)

    def neighbour_lost(self, node: str, incarnation: bytes, *, is_refused: bool, now: float) -> None:
        self._verify(self._watch.lost(node, incarnation, is_refused=is_refused, now=now))

    def _verify(self, asked: list[Named]) -> None:
        if asked:
            listed = ", ".join(name for name, _ in asked)
            self._outbox.add(Report(Level.INFO, "suspected", f"{listed}: silent, or a link to it broke; being asked"))
        for name, incarnation in asked:
            self._outbox.send(name, p.Ping(name, incarnation))
            for voter in self._raft.log.voters:
                if voter.node not in (self._me, name):
                    self._outbox.send(voter.node, p.HeardAsk(name, incarnation))

    def _join(self, sender: str, ask: p.JoinAsk, state: State) -> None:
        node, incarnation = ask.node, ask.node.incarnation
        present = state.node(node.name)
        if ask.essential != state.essential:
            mine, theirs = state.essential.hex(), ask.essential.hex()
            reason = f"node {node.name!r}: its essential parameters (digest {theirs}) are not the cluster's ({mine})"
            self._outbox.send(sender, p.JoinRefused(incarnation, "essential-differs", reason))
        elif present is not None and incarnation in present.replaced:
            reason = f"node {node.name!r}: a later start of it has taken its place"
            self._outbox.send(sender, p.JoinRefused(incarnation, "replaced", reason))
        elif present is None or present.incarnation != incarnation:
            self._ask_whether_there(sender, ask)
        else:
            self._admit(sender, node)

    def _ask_whether_there(self, sender: str, ask: p.JoinAsk) -> None:
        """A question that was under way for long may come from a start that is over, and must not replace a later."""
        self._nonce += 1
        self._arrivals.pop(ask.node.name, None)
        self._arrivals[ask.node.name] = (self._nonce, sender, ask)
        if len(self._arrivals) > self._settings.proposals_max:
            del self._arrivals[next(iter(self._arrivals))]
        self._outbox.send(ask.node.name, p.Ping(ask.node.name, ask.node.incarnation, self._nonce))

    def _is_there(self, pong: p.Pong) -> None:
        nonce, sender, ask = self._arrivals.get(pong.node, (0, "", None))
        if ask is not None and nonce == pong.nonce:
            del self._arrivals[pong.node]
            self._admit(sender, ask.node)

    def _admit(self, sender: str, node: NodeRecord) -> None:
        def answered(code: str, reason: str, index: int) -> None:
            if code and code != "busy":
                self._outbox.send(sender, p.JoinRefused(node.incarnation, code, reason))

        if node.name not in self._joining and not self._is_busy:
            self._propose(d.NodeJoined(node), answered)
            self._joining[node.name] = self._raft.log.last_index

    def _ask(self, sender: str, ask: p.Ask, state: State) -> None:
        def answered(code: str, reason: str, index: int) -> None:
            if ask.number:
                self._outbox.send(sender, p.Answer(ask.number, ask.incarnation, code, reason, index))

        match ask.request:
            case p.MovePrimary():
                answered(*self._judge.move_primary(state, ask.request, self._now), 0)
            case p.TransferLeadership(node):
                voter = next((v for v in self._raft.log.voters if v.node == node), None)
                chosen = self._leading.transfer(voter, self._now) if voter or not node else None
                answered(*(("", "") if chosen else ("no-such-voter", f"{node or 'nobody else'!r} can lead")), 0)
            case d.Nothing() | d.VotersSet() | d.NodeJoined() | d.NodesGone() | d.GroupFormed() | d.GroupPromoted():
                answered("not-allowed", f"{type(ask.request).__name__} is the leader's to propose", 0)
            case decision:
                self._propose(decision, answered)

    def _change(self, sender: str, ask: m.ShrinkAsk | m.AdmitAsk, state: State) -> None:
        group = state.groups.get(ask.group)

        def answered(code: str, reason: str, index: int) -> None:
            if code and code != "busy":
                refused = m.ChangeRefused(ask.group, ask.epoch, code, reason, group)
                self._outbox.send(sender, p.FromLeader(self.term, refused))

        if group is not None and not is_primary_here(state, group):
            answered("not-primary", f"group {ask.group!r}: its primary is being replaced", 0)
        elif isinstance(ask, m.ShrinkAsk):
            self._propose(d.GroupShrunk(ask.group, ask.epoch, ask.primary, ask.gone), answered)
        else:
            self._propose(d.GroupAdmitted(ask.group, ask.epoch, ask.primary, ask.replica), answered)

    # -- voters ----------------------------------------------------------------------------------------------

    def _keep_up_voters(self, state: State, now: float) -> None:
        """One change at a time until the wanted nodes vote, each with the disk that it has now. Whoever is not wanted,
        and still of use, stays until another has taken its place: with fewer voters fewer could be lost meanwhile."""
        leading, voters = self._leading, self._raft.log.voters
        if not leading.may_change_voters or leading.transfer_to is not None:
            return
        is_replaced = len(voters) > len(state.voters_wanted)
        outdated = [
            voter for voter in voters
            if self._is_outdated(state, voter) and (is_replaced or not self._is_of_use(state, voter, now))
        ]  # fmt: skip
        for voter in sorted(outdated, key=lambda voter: voter == self._raft.me):
            left = tuple(other for other in voters if other != voter)
            if left and leading.is_majority_heard(left, now):
                leading.change_voters(left, now)
                return
        leading.learners = {}
        for name in state.voters_wanted:
            node = state.node(name)
            if node is None or not node.voter_store or any(voter.node == name for voter in voters):
                continue
            learner = Voter(name, node.voter_store)
            leading.learners[learner.store] = learner
            if leading.is_caught_up(learner):
                leading.change_voters((*voters, learner), now)
                return

    def _is_outdated(self, state: State, voter: Voter) -> bool:
        return voter.node not in state.voters_wanted or _lost_its_disk(state, voter)

    def _is_of_use(self, state: State, voter: Voter, now: float) -> bool:
        return self._leading.is_majority_heard((voter,), now) and not _lost_its_disk(state, voter)


def _lost_its_disk(state: State, voter: Voter) -> bool:
    node = state.node(voter.node)
    return node is not None and node.voter_store not in (voter.store, b"")
