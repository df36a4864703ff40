"""Group services of one node: the machine that its driver runs.

    voters       Raft (raft.py, leading.py) over a log on disk (log.py)      ── one of them leads: leadership.py
    all nodes    the decided state (records.py, deciding.py), told as changes (changes.py)
                 membership.py: our own place; feeding.py: how nodes that do not vote learn what is decided

Every node that has applied the same index has the same state, and has told its driver the same changes in the same
order. There is no view, no primary and no setting that a majority of the voters has not on disk.

The driver delivers `Started` first, performs commands in order, and delivers `Tick` at `deadline()`. See events.py.

`seeds` names the configured voters: who founds the cluster, and whom a node asks first; `more_seeds` others who are
asked, because they may vote by now. `keeps_log`: this node has a disk for the log, and can vote. `jitter` gives numbers
between 0 and 1 by chance.
"""
from collections.abc import Callable, Mapping

import msgspec

from angarium.core.errors import LocalProtocolError, Rejected, StorageCorrupt
from angarium.core.groups import protocol as p
from angarium.core.groups.changes import changes_between
from angarium.core.groups.contacts import Contacts
from angarium.core.groups.deciding import applied
from angarium.core.groups.decisions import decode_decision
from angarium.core.groups.events import (
    Command,
    Event,
    FromReplica,
    JoinGroup,
    Leave,
    LeaveGroup,
    MessageReceived,
    NeighbourFound,
    NeighbourLost,
    Persisted,
    RecordChanged,
    Requested,
    SeekNode,
    Started,
    Tick,
    ToReplica,
    Withdrawn,
)
from angarium.core.groups.feeding import Feeder, Subscription
from angarium.core.groups.founding import Founder
from angarium.core.groups.leadership import Leadership
from angarium.core.groups.log import IDENTITY, TERM, Identity, Log, TermRecord, put
from angarium.core.groups.membership import Membership
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import Raft
from angarium.core.groups.records import NodeRecord, State, Voter, decode_state, encode_state
from angarium.core.groups.settings import GroupSettings
from angarium.core.malformed import MALFORMED


class GroupServices:
    def __init__(
        self, record: NodeRecord, *, seeds: tuple[str, ...], essential: bytes, keeps_log: bool,
        settings: GroupSettings, jitter: Callable[[], float], more_seeds: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.state = State()
        self.name = record.name
        self._seeds = seeds
        self._essential = essential
        self._keeps_log = keeps_log
        self._settings = settings
        self._jitter = jitter
        self._outbox = Outbox(record.name)
        self._asked = asked = tuple(dict.fromkeys((*seeds, *more_seeds)))
        self._subscription = Subscription(record.name, asked, settings, jitter)
        self._contacts = Contacts(
            record.name, record.incarnation, asked, self._subscription, self._outbox, settings
        )
        self._membership = Membership(record, essential, self._outbox, settings, self._contacts.to_leader)
        self._raft: Raft | None = None
        self._feeder: Feeder | None = None
        self._founder: Founder | None = None
        self._leadership: Leadership | None = None
        self._due: float | None = None
        self._is_started = False
        self._has_handed_over = False  # the leadership, since we are leaving

    # -- what others may look at -----------------------------------------------------------------------

    @property
    def raft(self) -> Raft | None:
        return self._raft

    @property
    def is_leader(self) -> bool:
        return self._raft is not None and self._raft.is_leader

    @property
    def leader(self) -> str:
        """As far as this node knows; empty: none."""
        return self._contacts.leader

    def deadline(self) -> float | None:
        return self._due

    # -- events ----------------------------------------------------------------------------------------

    def handle(self, event: Event, *, now: float) -> list[Command]:
        if self._is_started == isinstance(event, Started):
            raise LocalProtocolError(f"{type(event).__name__}: Started comes first, and once")
        if self._due is not None and now - self._due > self._settings.lag_s:
            self._lagged(now - self._due, now)
        index = self.state.index
        self._event(event, now)
        self._settle(now, is_tick=isinstance(event, Tick) or self.state.index != index)
        return self._outbox.take()

    def _event(self, event: Event, now: float) -> None:
        membership = self._membership
        match event:
            case MessageReceived(sender, message):
                self._receive(sender, message, now)
            case Persisted(token):
                self._outbox.persisted(token)
                if self._raft is not None:
                    self._raft.persisted(now)
            case Tick():
                self._tick(now)
            case NeighbourLost(node, incarnation, is_refused):
                self._neighbour_lost(node, incarnation, is_refused, now)
            case NeighbourFound(node):
                pass  # it will be heard
            case FromReplica(message):
                self._contacts.to_leader(message)
            case Requested(number, request):
                membership.request(number, request)
                membership.tick(self.state, now)
            case Withdrawn(number):
                membership.withdraw(number)
            case JoinGroup(group, label):
                membership.want(group, label, is_in=True)
                membership.tick(self.state, now)
            case LeaveGroup(group, label):
                membership.want(group, label, is_in=False)
                membership.tick(self.state, now)
            case RecordChanged(node):
                self._record(node)
                membership.tick(self.state, now)
            case Leave():
                membership.leave()
                self._tick(now)
            case Started(records, fresh_store):
                self._start(records, fresh_store, now)

    def _start(self, records: Mapping[bytes, bytes], fresh_store: bytes, now: float) -> None:
        self._is_started = True
        self._contacts.start(None, now)
        if not self._keeps_log:
            self._tick(now)
            return
        try:
            identity = msgspec.msgpack.decode(records[IDENTITY], type=Identity) if IDENTITY in records else None
            term = msgspec.msgpack.decode(records[TERM], type=TermRecord) if TERM in records else TermRecord()
        except MALFORMED as error:
            raise StorageCorrupt(f"the identity or the term of this voter: {error}") from None
        if identity is None:
            if records:
                raise StorageCorrupt("the log of decisions has no identity")
            identity = Identity(fresh_store)
            self._outbox.write([put(IDENTITY, identity)])
        log = Log.recover(records)
        me = Voter(self.name, identity.store)
        raft = Raft(me, identity.cluster, term, log, self._outbox, self._settings, self._jitter, now=now)
        self._raft = raft
        self._contacts.start(raft, now)
        self._contacts.set_voters(tuple(dict.fromkeys((*self._asked, *(voter.node for voter in log.voters)))))
        self._feeder = Feeder(raft, self._outbox, self._settings, self._voters_told)
        if self.name in self._seeds:
            self._founder = Founder(raft, self._seeds, self._essential, self._outbox, self._settings, now=now)
        self._record(self._membership.record)
        self._tick(now)

    def _voters_told(self) -> tuple[tuple[str, str], ...]:
        """Names and addresses of those that are in the view."""
        found = [self.state.node(voter.node) for voter in self.state.voters]
        return tuple((node.name, node.addresses[0]) for node in found if node is not None and node.addresses)

    def _record(self, node: NodeRecord) -> None:
        if (node.name, node.incarnation) != (self.name, self._membership.record.incarnation):
            raise LocalProtocolError(f"record of {node.name!r}: this node is {self.name!r}, and stays as it started")
        store = b"" if self._raft is None else self._raft.me.store
        self._membership.record = msgspec.structs.replace(node, voter_store=store, replaced=())

    def _lagged(self, late_s: float, now: float) -> None:
        self._subscription.lagged(now)
        if self._raft is not None:
            self._raft.lagged(late_s, now)
        if self._leadership is not None:
            self._leadership.lagged(now)

    def _neighbour_lost(self, node: str, incarnation: bytes, is_refused: bool, now: float) -> None:
        self._subscription.lost(node, now)
        if self._raft is not None and is_refused:
            self._raft.leader_lost(node, now)
        if self._leadership is not None:
            self._leadership.neighbour_lost(node, incarnation, is_refused=is_refused, now=now)
        elif node != self._contacts.leader:
            self._contacts.to_leader(p.LostReport(node, incarnation, is_refused))

    # -- messages --------------------------------------------------------------------------------------

    def _receive(self, sender: str, message: Message, now: float) -> None:
        if isinstance(message, p.BETWEEN_VOTERS):
            if self._raft is not None:
                self._raft.receive(sender, message, now=now)
        elif isinstance(message, p.LEADER_BOUND):
            if self._leadership is not None:
                self._leadership.receive(sender, message, self.state, now)
            elif self._raft is not None and self._raft.leader is not None and sender != self._raft.leader.node:
                self._outbox.send(self._raft.leader.node, p.ToLeader(sender, message))
        else:
            self._receive_other(sender, message, now)

    def _receive_other(self, sender: str, message: Message, now: float) -> None:
        subscription = self._subscription
        match message:
            case p.Heartbeat():
                if self._feeder is not None:
                    self._feeder.heartbeat(message, now)
                if self._leadership is not None:
                    self._leadership.receive(sender, message, self.state, now)
            case p.Beat():
                self._contacts.beat(sender, message, now)
                self._outbox.add(*(SeekNode(address) for name, address in message.voters if name != self.name))
            case p.Feed(first, decisions):
                subscription.heard(sender, now)
                for index, data in enumerate(decisions, first):
                    if index == self.state.index + 1:
                        self._apply(data, index)
            case p.FeedPart():
                subscription.heard(sender, now)
                before = subscription.progress
                state = subscription.part(message, self.state.index)
                if state is not None:
                    self._jump(state)
                if subscription.progress != before:  # else it would go on for ever, as fast as the network
                    self._contacts.heartbeat(sender, self.state, wants_feed=True)
            case p.ToLeader(first_sender, forwarded):
                if self._leadership is not None:
                    self._leadership.receive(first_sender, forwarded, self.state, now)
            case p.FromLeader(term, for_replica):
                if self._contacts.is_current(term):
                    self._outbox.add(ToReplica(for_replica))
            case p.Ping(node, incarnation, nonce):
                if (node, incarnation) == (self.name, self._membership.record.incarnation):
                    self._outbox.send(sender, p.Pong(node, incarnation, nonce))
            case p.Pong() | p.HeardAnswer():
                if self._leadership is not None:
                    self._leadership.receive(sender, message, self.state, now)
            case p.HeardAsk(node, incarnation):
                age_s = None if self._feeder is None else self._feeder.heard_age_s(node, incarnation, now)
                if age_s is not None:
                    self._outbox.send(sender, p.HeardAnswer(node, incarnation, age_s))
            case p.JoinRefused():
                self._membership.refused(message)
            case p.Answer():
                self._membership.answered(message)
            case p.FormAsk():
                if self._founder is not None:
                    self._founder.asked(sender, message)
            case p.FormAnswer():
                if self._founder is not None:
                    self._founder.answered(message, now)

    # -- time ------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        if self._founder is not None and not self.state.index:
            self._founder.tick(now)
        if self._raft is not None:
            self._raft.tick(now)
        self._contacts.tick(self.state, now)
        self._membership.tick(self.state, now)

    def _next_due(self, now: float) -> float | None:
        times = [self._membership.deadline(self.state), self._contacts.deadline(now)]
        if self._founder is not None and not self.state.index:
            times.append(self._founder.deadline())
        if self._raft is not None:
            times.append(self._raft.deadline())
        if self._leadership is not None:
            times.append(self._leadership.deadline())
        due = min((time for time in times if time is not None), default=None)
        return None if due is None else max(due, now)

    # -- what follows from it --------------------------------------------------------------------------

    def _settle(self, now: float, *, is_tick: bool) -> None:
        """Apply what is committed, take up or lay down the leadership, and hear what we said to ourselves; to rest."""
        while True:
            index = self.state.index
            self._apply_committed()
            self._follow_raft(now)
            if self._leadership is not None and (is_tick or self.state.index != index):
                self._leadership.tick(self.state, now)
            is_tick = False
            if self.state.index != index:
                self._membership.tick(self.state, now)
                continue
            if self._outbox.local:
                self._receive(self.name, self._outbox.local.popleft(), now)
                is_tick = True
                continue
            if self._raft is None or self._raft.commit <= self.state.index:
                break
        if self._raft is not None and self._raft.leading is not None:
            self._raft.leading.tell_commit(now)
        if self._feeder is not None:
            self._feeder.push(now)
        self._compact()
        self._due = self._next_due(now)

    def _follow_raft(self, now: float) -> None:
        raft = self._raft
        if raft is None:
            return
        is_replaced = self._leadership is not None and self._leadership.term != raft.term
        if self._leadership is not None and (not raft.is_leader or is_replaced):
            self._leadership = None
        if raft.is_leader and self._leadership is None:
            self._leadership = Leadership(self.name, raft, self._outbox, self._settings, now=now)
        if raft.leading is not None:
            if raft.me not in raft.log.voters and raft.log.voters_index <= raft.commit:
                raft.leading.transfer(None, now)  # we have decided that we vote no more
                raft.step_down(now)
                self._leadership = None
            elif self._membership.is_left and not self._has_handed_over:
                self._has_handed_over = True
                raft.leading.transfer(None, now)
        self._contacts.see_raft(now)

    def _apply_committed(self) -> None:
        raft = self._raft
        if raft is None:
            return
        if raft.log.snapshot.index > self.state.index:
            self._jump(decode_state(raft.log.snapshot.state))
        while self.state.index < raft.commit:
            index = self.state.index + 1
            self._apply(raft.log.entry(index).data, index)

    def _apply(self, data: bytes, index: int) -> None:
        refusal: Rejected | None = None
        try:
            state = applied(self.state, decode_decision(data), index)
        except Rejected as error:
            refusal, state = error, self.state.with_index(index)
        self._take(state)
        if self._leadership is not None:
            self._leadership.applied(index, refusal)

    def _jump(self, state: State) -> None:
        if state.index > self.state.index:
            self._take(state)

    def _take(self, state: State) -> None:
        old, self.state = self.state, state
        self._outbox.add(*changes_between(old, state))
        if state.voters != old.voters:
            self._contacts.set_voters(tuple(voter.node for voter in state.voters))
        if state.nodes is not old.nodes:
            self._membership.changed(state)
            if self._feeder is not None:
                self._feeder.forget(state)
        raft = self._raft
        if raft is not None and not raft.is_leader:
            raft.is_retired = state.index >= raft.log.voters_index and raft.me not in state.voters

    def _compact(self) -> None:
        raft, index = self._raft, self.state.index
        if raft is None or index > raft.commit or index - raft.log.snapshot.index < self._settings.log_entries_max:
            return
        tail = self._settings.log_tail_entries
        self._outbox.write(raft.log.compact(index, encode_state(self.state), tail_entries=tail))
