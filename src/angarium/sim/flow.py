"""Limits, and messages that are not yet due: the audit of what a queue takes and when it gives it on.

- A queue that refuses never holds more than its limit. One that gives up its oldest holds no more, once it is at rest
  and nobody consumes from it. One that blocks has told every open producer, once it is at rest and full.
- A commit is never refused because a queue blocks. Before it is answered, its producers on queues that are full now
  are told, where what is being buried for the node's limits does not count; and who was told to wait before the answer
  does so with its next commit.
- Nothing is in a log before it is due.
"""
from collections.abc import Callable

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.destination.limits import CODE as FULL
from angarium.core.wire import frames
from angarium.sim.broker import WALL_MS_AT_ZERO
from angarium.sim.durable import Change, DurableState, Message, Place
from angarium.sim.messages import Violation


class FlowAudit:
    def __init__(self, durable: DurableState) -> None:
        self._durable = durable
        self._opening: dict[tuple[bytes, int], str] = {}  # session, producer -> queue
        self._consumed: set[str] = set()  # queues that ever had a consumer
        self._were_delayed: set[Message] = set()
        self._late: set[Place] = set()  # taken before, and moved into the log whatever the limit is
        self._shortened: set[str] = set()  # queues of which something has died
        self._commits: dict[tuple[bytes, int], list[int]] = {}  # session, number -> producers of what it sends
        self.full_seen = 0  # how often a full queue was found to have told its producers
        self.node_makes_room = False  # then a queue may hold less than its own limit ...
        self.dying: Callable[[], set[Place]] = set  # ... and this is what of it is on its way to the dead
        self.commits_seen = 0  # that filled a queue, and whose producers were told before the answer
        self.broker_started()

    def broker_started(self) -> None:
        self._is_blocked: dict[tuple[bytes, int], bool] = {}  # producers that are open
        self._waiting: set[tuple[bytes, int]] = set()  # those that were told before a commit of theirs was answered

    def to_manager(self, event: FromSession) -> None:
        frame, session = event.frame, event.session
        match frame:
            case frames.ProducerOpen(number, name):
                self._opening[session, number] = name
            case frames.ConsumerOpen(_, name):
                self._consumed.add(name)
            case frames.ProducerClose(number):
                self._closed(session, number)
            case frames.TransactionCommit():
                self._committing(session, frame)
            case frames.SessionEnded():
                for _, number in [key for key in self._is_blocked if key[0] == session]:
                    self._closed(session, number)

    def from_manager(self, command: ToSession) -> None:
        frame, session = command.frame, command.session
        match frame:
            case frames.ProducerOpened(number):
                self._closed(session, number)  # if it was open before, it begins anew
                self._is_blocked[session, number] = False
            case frames.ProducerClosed(number):
                self._closed(session, number)
            case frames.Block(number):
                self._is_blocked[session, number] = True
            case frames.Unblock(number):
                self._is_blocked[session, number] = False
                self._waiting.discard((session, number))
            case frames.Committed(number):
                self._committed(session, number)
            case frames.Aborted(number, code):
                self._aborted(session, number, code)

    def _closed(self, session: bytes, producer: int) -> None:
        self._is_blocked.pop((session, producer), None)
        self._waiting.discard((session, producer))

    # -- commits -------------------------------------------------------------------------------------

    def _committing(self, session: bytes, frame: frames.TransactionCommit) -> None:
        producers = [number for _, number, _ in frame.publishes]
        if (session, frame.number) not in self._commits:
            for producer in producers:
                if (session, producer) in self._waiting:
                    what = f"commit {frame.number} sends to {self._opening[session, producer]!r}"
                    raise Violation("who is told to wait waits with the next commit", what)
        self._commits[session, frame.number] = producers

    def _committed(self, session: bytes, number: int) -> None:
        for producer in self._commits[session, number]:
            is_blocked, queue = self._is_blocked.get((session, producer)), self._opening[session, producer]
            # What consumers settle the manager knows before the disk does; where there are none, both know the same,
            # but for what dies of the node's limits in a write that is asked for.
            is_sure = queue not in self._consumed and queue not in self._shortened
            if is_blocked is False and is_sure and self._is_full(queue):
                raise Violation("who fills a queue is told before the answer", f"{queue}: commit {number}")
            if is_blocked:
                self.commits_seen += is_sure
                self._waiting.add((session, producer))

    def _aborted(self, session: bytes, number: int, code: str) -> None:
        queues = {self._opening[session, producer] for producer in self._commits[session, number]}
        refusing = [queue for queue in queues if self._durable.records[queue].over_limit == "refuse"]
        if code == FULL and not refusing:
            raise Violation("no commit is refused because a queue blocks", f"commit {number} to {sorted(queues)}")

    def _is_full(self, queue: str) -> bool:
        record = self._durable.records[queue]
        if record.over_limit != "block" or not 0 < record.messages_max <= len(self._durable.unsettled[queue]):
            return False
        dying = {position for name, position in self.dying() if name == queue}
        return record.messages_max <= len(self._durable.unsettled[queue] - dying)

    # -- what is there -------------------------------------------------------------------------------

    def changed(self, change: Change, now: float) -> None:
        wall_ms = WALL_MS_AT_ZERO + now * 1000
        self._shortened.update(queue for queue, _ in change.buried)
        for stored in change.stored:
            if stored.position >= 0 and stored.due_ms > wall_ms:
                early_ms = stored.due_ms - wall_ms
                raise Violation("nothing comes before it is due", f"{stored.queue}: {stored.position}, {early_ms} ms")
        self._were_delayed.update(stored.message for stored in change.stored if stored.position == -1)
        self._late.update(
            (stored.queue, stored.position) for stored in change.stored if stored.message in self._were_delayed
        )
        for queue in {stored.queue for stored in change.stored if stored.position >= 0}:
            record = self._durable.records[queue]
            held = sum((queue, position) not in self._late for position in self._durable.unsettled[queue])
            if record.over_limit == "refuse" and 0 < record.messages_max < held:
                raise Violation("a queue keeps its limit", f"{queue} holds {held} messages")

    def at_rest(self) -> None:
        """Nothing is under way in the broker: what the disk says is what it knows."""
        for queue, record in self._durable.records.items():
            held = len(self._durable.unsettled[queue])
            is_idle = queue not in self._consumed and (held > record.messages_max or queue in self._shortened)
            is_wrong = held > record.messages_max or (held < record.messages_max and not self.node_makes_room)
            if record.over_limit == "oldest" and record.messages_max and is_idle and is_wrong:
                raise Violation("a queue keeps its limit", f"{queue} holds {held}, not {record.messages_max} messages")
            if not record.messages_max or held < record.messages_max:
                continue
            if record.over_limit == "block":
                self._check_told(queue, held)

    def _check_told(self, queue: str, held: int) -> None:
        for (session, number), is_blocked in self._is_blocked.items():
            if self._opening[session, number] == queue and not is_blocked:
                raise Violation("producers are told to wait", f"{queue} holds {held} messages, and one was not told")
            self.full_seen += is_blocked
