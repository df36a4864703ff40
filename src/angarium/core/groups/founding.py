"""The first forming of a cluster's voters: once in its life, when all of them are there and all are empty.

    founder (the first configured voter)                  every other configured voter
        FormAsk(founder's disk) ------------------------->  empty? bind to this founder, durably
        all answered, all empty <-------- FormAnswer(its disk, is_empty)
        writes the first entry: the voters, as disks; from here on it is an ordinary election

A voter that lost its disk is empty, too, but then another is not, and there is nothing to found: it comes as a node
that does not vote, and the leader takes its new disk in. Because an answer binds, a founder that loses its disk in the
middle and asks again under a new id cannot meet voters that still listen to the old one.

All voters have to be there the first time; a majority is enough ever after.

A voter that belongs to no cluster yet, and is asked by one whose essential parameters are not its own, stops: which of
the two is wrong nobody knows, and together they will found nothing. The one that asked goes on waiting, and says so.
"""
from angarium.core.groups import protocol as p
from angarium.core.groups.decisions import Founding, VotersSet, encode_decision
from angarium.core.groups.events import StopNode
from angarium.core.groups.log import IDENTITY, Identity, put
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import Raft
from angarium.core.groups.records import Voter
from angarium.core.groups.settings import GroupSettings
from angarium.core.report import Level, Report


class Founder:
    """Of a node that is a configured voter."""

    def __init__(
        self, raft: Raft, seeds: tuple[str, ...], essential: bytes, outbox: Outbox, settings: GroupSettings, *,
        now: float,
    ) -> None:  # fmt: skip
        self._raft = raft
        self._seeds = seeds
        self._essential = essential
        self._outbox = outbox
        self._settings = settings
        self._empty: dict[str, Voter] = {}
        self._ask_at = now
        self._wait_s = settings.beacon_s_min
        self._is_reported = False

    @property
    def _may_found(self) -> bool:
        return self._raft.log.is_empty and self._seeds[0] == self._raft.me.node

    def deadline(self) -> float | None:
        return self._ask_at if self._may_found else None

    def tick(self, now: float) -> None:
        if not self._may_found or now < self._ask_at:
            return
        self._wait_s = min(2 * self._wait_s, self._settings.beacon_s_max)
        self._ask_at = now + self._wait_s
        self._empty = {}  # who answered long ago may have changed since
        for name in self._seeds[1:]:
            self._outbox.send(name, p.FormAsk(self._raft.me, self._essential))
        self._found_if_complete(now)

    def asked(self, sender: str, ask: p.FormAsk) -> None:
        raft = self._raft
        is_same = ask.essential == self._essential
        if ask.founder.node == self._seeds[0] == sender:
            if is_same and raft.log.is_empty and raft.cluster != ask.founder.store:
                raft.cluster = ask.founder.store
                self._outbox.write([put(IDENTITY, Identity(raft.me.store, raft.cluster))])
            answer = p.FormAnswer(ask.founder.store, raft.me, raft.log.is_empty, self._essential)
            self._outbox.send_durable(sender, answer)
        if not is_same and raft.log.is_empty:
            self._differs(sender, ask)

    def _differs(self, sender: str, ask: p.FormAsk) -> None:
        if not self._is_reported:
            self._is_reported = True
            mine, theirs = self._essential.hex(), ask.essential.hex()
            whose = f"node {self._raft.me.node!r}: its essential parameters (digest {mine})"
            reason = f"{whose} are not those of voter {sender!r} ({theirs}), and no cluster is founded"
            self._outbox.add(StopNode("essential-differs", reason))

    def answered(self, answer: p.FormAnswer, now: float) -> None:
        if not self._may_found or answer.founder != self._raft.me.store:
            return
        if answer.essential != self._essential:
            if not self._is_reported:
                self._is_reported = True
                digests = f"digest {answer.essential.hex()} there, {self._essential.hex()} here"
                text = f"no cluster: voter {answer.voter.node!r} has other essential parameters: {digests}"
                self._outbox.add(Report(Level.ERROR, "essential-differs", text))
        elif answer.is_empty:
            self._empty[answer.voter.node] = answer.voter
            self._found_if_complete(now)

    def _found_if_complete(self, now: float) -> None:
        others = self._seeds[1:]
        if any(name not in self._empty for name in others):
            return
        raft = self._raft
        voters = (raft.me, *(self._empty[name] for name in others))
        founding = Founding(raft.me.store, self._essential, self._settings.limits)
        raft.found(encode_decision(VotersSet(voters, founding)), now)
        text = f"cluster founded by {raft.me.node!r} with voters {', '.join(voter.node for voter in voters)}"
        self._outbox.add(Report(Level.INFO, "cluster-founded", text))
