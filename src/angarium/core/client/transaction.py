"""The commit of one session: its sends and settlements leave as one frame, all or nothing.

    IDLE --Commit--> WAITING --all its producers and consumers are open--> SENT --Committed, Aborted--> IDLE
                      │ ▲                                                    │
     WithdrawCommit ──┘ └─────────────────── disconnected ───────────────────┘

- The batches are packed once, under sequences that follow those of the commit before. After a reconnection the same
  bytes go again under the same number, until there is an answer: the broker remembers the last number it committed.
- While one of its producers is blocked, a commit that was never sent waits; meanwhile it can be withdrawn. One that
  was sent goes again all the same: the broker may have done it, and its answer is owed.
- Aborted: the sequences are given to the next commit, and the consumers still hold what they were to settle.
- A producer or consumer that ends before the commit was ever sent aborts it here. Once it was sent only the broker
  knows, so it is sent again whatever has ended meanwhile.
"""
from angarium.core.client import events
from angarium.core.client.consumer import ConsumerWindow
from angarium.core.client.gathered import Gathered
from angarium.core.client.outlet import Outlet
from angarium.core.client.producer import ProducerWindow
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.ranges import Range
from angarium.core.wire import frames

RANGE_BYTES_MAX = 19  # in MessagePack
LINK_BYTES_MAX = 24  # a producer or consumer and its length, the same
FRAME_BYTES_BESIDE = 64


class TransactionWindow:
    def __init__(self, session: int) -> None:
        self._session = session
        self._number = 0  # of the last commit
        self._is_active = False
        self._was_sent = False  # on whatever connection
        self._is_sent = False  # on the present one
        self._publishes: list[tuple[ProducerWindow, list[Gathered]]] = []
        self._settles: list[tuple[ConsumerWindow, list[Range]]] = []
        self._batches: list[tuple[ProducerWindow, bytes, int]] = []  # packed, and how many messages

    @property
    def is_idle(self) -> bool:
        return not self._is_active

    def commit(
        self,
        publishes: list[tuple[ProducerWindow, list[Gathered]]],
        settles: list[tuple[ConsumerWindow, list[Range]]],
        outlet: Outlet,
    ) -> None:
        if self._is_active:
            raise LocalProtocolError(f"session {self._session}: commit {self._number} is not answered yet; await it")
        for consumer, ranges in settles:
            consumer.check_held(ranges)
        for consumer, ranges in settles:
            consumer.commits(ranges)
        self._number += 1
        self._is_active = True
        self._was_sent = self._is_sent = False
        self._publishes, self._settles = publishes, settles
        self.pump(outlet)

    def withdraw(self, outlet: Outlet) -> None:
        """Undo a commit that the broker has not heard of."""
        if not self._is_active:
            raise LocalProtocolError(f"session {self._session}: no commit is under way: nothing to withdraw")
        if self._was_sent:
            raise LocalProtocolError(
                f"session {self._session}: commit {self._number} is under way, since it was sent; await its outcome"
            )
        self._abort("rolled-back", "it was withdrawn before it left", outlet)

    def disconnected(self) -> None:
        self._is_sent = False

    def pump(self, outlet: Outlet) -> None:
        """Something has opened, unblocked or ended: send the commit if nothing is in the way any more."""
        if not self._is_active or self._is_sent:
            return
        links: list[ProducerWindow | ConsumerWindow] = [producer for producer, _ in self._publishes]
        links += [consumer for consumer, _ in self._settles]
        ended = next((link.end for link in links if link.end is not None), None)
        if ended is not None and not self._was_sent:
            self._abort(*ended, outlet)
        elif all(link.is_open or link.end is not None for link in links) and (self._was_sent or self._is_free()):
            self._send(outlet)

    def _is_free(self) -> bool:
        return not any(producer.is_blocked for producer, _ in self._publishes)

    def _send(self, outlet: Outlet) -> None:
        if not self._was_sent:
            self._batches = [
                (producer, part.pack(producer.identity, producer.reserve(len(part))), len(part))
                for producer, parts in self._publishes
                for part in parts
            ]
        frame = frames.Commit(
            self._number,
            [(producer.number, len(batch)) for producer, batch, _ in self._batches],
            [(consumer.number, ranges) for consumer, ranges in self._settles],
        )
        total = frame_bytes_max(self._batches, self._settles)
        if total > outlet.frame_bytes_max and not self._was_sent:
            limit = outlet.frame_bytes_max
            reason = f"a transaction of {total:,} bytes exceeds frame_bytes_max {limit:,}; commit sooner"
            self._abort("transaction-too-long", reason, outlet)
            return
        self._was_sent = self._is_sent = True
        outlet.send_with(self._session, frame, *(batch for _, batch, _ in self._batches))

    # -- from the broker -------------------------------------------------------------------------

    def on_committed(self, frame: frames.Committed, outlet: Outlet) -> None:
        if frame.number < self._number or (frame.number == self._number and not self._is_active):
            return  # it was sent again, and each sending is answered
        # The answer to an earlier sending is as good: it is durable.
        self._check_answer("committed", frame.number, self._was_sent)
        for producer, _, _ in self._batches:
            producer.committed()
        settles = self._settles
        self._end()
        for consumer, ranges in settles:
            consumer.committed(ranges, outlet)
        outlet.tell(events.Committed(self._session))

    def on_aborted(self, frame: frames.Aborted, outlet: Outlet) -> None:
        self._check_answer("aborted", frame.number, self._is_sent)
        self._abort(frame.code, frame.reason, outlet)

    def _check_answer(self, what: str, number: int, is_sent: bool) -> None:
        if not is_sent or number != self._number:
            known = f"commit {self._number} is unanswered" if is_sent else "nothing was to be committed"
            reason = f"session {self._session}: broker {what} number {number}, and {known}"
            raise RemoteProtocolError("bad-number", reason)

    def _abort(self, code: str, reason: str, outlet: Outlet) -> None:
        for producer, _, count in self._batches:
            producer.unreserve(count)
        for consumer, _ in self._settles:
            consumer.commits([])
        if not self._was_sent:
            self._number -= 1  # the broker has never heard of it
        self._end()
        outlet.tell(events.Aborted(self._session, code, reason))

    def _end(self) -> None:
        self._is_active = self._is_sent = self._was_sent = False
        self._publishes, self._settles, self._batches = [], [], []


def frame_bytes_max(
    batches: list[tuple[ProducerWindow, bytes, int]], settles: list[tuple[ConsumerWindow, list[Range]]]
) -> int:
    """The frame will not be longer than this."""
    payload = sum(len(batch) + LINK_BYTES_MAX for _, batch, _ in batches)
    return FRAME_BYTES_BESIDE + payload + sum(LINK_BYTES_MAX + RANGE_BYTES_MAX * len(ranges) for _, ranges in settles)
