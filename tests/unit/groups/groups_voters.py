"""Voters joined by hand: each message and each write waits until the test lets it through."""
from collections.abc import Callable

from angarium.core.groups.decisions import SettingSet, VotersSet, encode_decision
from angarium.core.groups.events import Persist, SendMessage
from angarium.core.groups.log import Log, TermRecord
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.protocol import Entry
from angarium.core.groups.raft import Raft
from angarium.core.groups.records import Voter
from angarium.core.groups.settings import GroupSettings
from angarium.core.storage import Put

SETTINGS = GroupSettings()
CLUSTER = b"cluster"


def voter(name: str) -> Voter:
    return Voter(name, name.encode() * 4)


class One:
    """A voter, what it has sent and not yet delivered, and its disk."""

    def __init__(self, name: str, voters: str, terms: tuple[int, ...] = (), term: TermRecord | None = None) -> None:
        """`terms`: of the entries after the first, which sets the voters."""
        self.outbox = Outbox(name)
        log = Log()
        first = Entry(0, 1, encode_decision(VotersSet(tuple(voter(other) for other in voters))))
        rest = [Entry(t, n, encode_decision(SettingSet("k", b"%d" % t))) for n, t in enumerate(terms, 2)]
        log.append([first, *rest])
        record = term or TermRecord(terms[-1] if terms else 0)
        self.raft = Raft(voter(name), CLUSTER, record, log, self.outbox, SETTINGS, lambda: 0.0, now=0.0)
        self.sent: list[SendMessage] = []
        self.unwritten: list[Persist] = []
        self.disk: dict[bytes, bytes] = {}

    def take(self) -> None:
        for command in self.outbox.take():
            if isinstance(command, SendMessage):
                self.sent.append(command)
            elif isinstance(command, Persist):
                self.unwritten.append(command)

    def tick(self, now: float) -> None:
        self.raft.tick(now)
        self.take()

    def receive(self, sender: str, message: Message, now: float) -> None:
        self.raft.receive(sender, message, now=now)
        self.take()

    def write(self, now: float) -> None:
        while self.unwritten:
            persist = self.unwritten.pop(0)
            self.disk |= {o.key: o.value for o in persist.operations if isinstance(o, Put)}
            self.outbox.persisted(persist.token)
            self.raft.persisted(now)
            self.take()

    def says(self, kind: type[Message]) -> list[Message]:
        """What of this kind it has sent; forgotten with that."""
        found = [command.message for command in self.sent if isinstance(command.message, kind)]
        self.sent = [command for command in self.sent if not isinstance(command.message, kind)]
        return found


class Several:
    def __init__(self, voters: str, logs: dict[str, tuple[int, ...]] | None = None) -> None:
        self.all = {name: One(name, voters, (logs or {}).get(name, ())) for name in voters}
        self.now = 0.0

    def __getitem__(self, name: str) -> One:
        return self.all[name]

    def run(self, *, only: str = "", until: Callable[[], bool] | None = None, seconds: float = 0.0) -> None:
        """Deliver and write everything among these, then let time pass, until it holds or is over."""
        names = only or "".join(self.all)
        end = self.now + seconds
        while True:
            self._deliver(names)
            if (until is not None and until()) or self.now >= end:
                return
            self.now += 0.05
            for name in names:
                self.all[name].tick(self.now)

    def _deliver(self, names: str) -> None:
        busy = True
        while busy:
            busy = False
            for name in names:
                one = self.all[name]
                if one.unwritten:
                    busy = True
                    one.write(self.now)
                sent, one.sent = one.sent, []
                for command in sent:
                    if command.to in names:
                        busy = True
                        self.all[command.to].receive(name, command.message, self.now)

    def elect(self, name: str, *, only: str = "") -> Raft:
        """This one stands, and the others are patient."""
        raft = self.all[name].raft
        for one in self.all.values():
            one.raft._election_at = self.now + (0.0 if one.raft is raft else 100.0)
            one.raft._leader_heard_at = None
        self.all[name].tick(self.now)
        self.run(only=only)
        for one in self.all.values():
            one.raft._election_at = self.now + 100.0
        return raft
