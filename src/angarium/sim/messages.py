"""What was published, what was confirmed, and what the disk holds of it: the ledger's page on logs.

It watches the disk as groups become durable, never the machines, and objects at once when
- a position of a log changes its message, or a message gets a second position (no duplicates in the log);
- the messages of one producer are not in the order of their sequences (order per producer);
- a confirm leaves the broker for a message that is not durable, on a destination that promises it.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from angarium.core.client.gathered import Options
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.headers import read_map
from angarium.core.destination.log import lane_of
from angarium.core.destination.records import DestinationRecord
from angarium.core.ids import group_of
from angarium.core.moving.records import PLACED_KEY, ArrivalRecord
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.selector.fields import Fields
from angarium.core.storage import DeleteRange, Operation, Put, Table
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise
        self.what = what


@dataclass(slots=True, eq=False)
class ProducerFacts:
    """One producer of one application."""

    destination: str
    bodies: list[bytes] = field(default_factory=list)  # of sequence 1, 2, ...
    published_at: list[float] = field(default_factory=list)
    expiries_ms: list[int] = field(default_factory=list)
    identity: bytes = b""
    confirmed: int = 0  # as its application was told
    confirmed_sent: int = 0  # as the broker has said, whether it arrived or not
    confirmed_at: dict[int, float] = field(default_factory=dict)  # sequence -> when the broker said so
    forgiven: set[int] = field(default_factory=set)  # confirmed in memory only, and the broker crashed
    refused: set[int] = field(default_factory=set)  # as its application was told
    identifiers: dict[int, str] = field(default_factory=dict)  # sequence -> deduplication id
    is_abandoned: bool = False  # its client crashed, or gave up waiting
    is_staged: bool = False  # what it publishes is in the log only if a commit names it

    def note(self, body: bytes, now: float, options: Options | None) -> None:
        """The application publishes this."""
        self.bodies.append(body)
        self.published_at.append(now)
        self.expiries_ms.append(options.expiry_ms if options is not None else 0)
        if options is not None and options.announcements & Columns.DEDUPLICATION:
            self.identifiers[len(self.bodies)] = read_map(options.headers)["deduplication_id"]

    def take_back(self, count: int) -> None:
        """The last `count` messages were never published: their sequences are given to others."""
        for sequence in range(len(self.bodies) - count + 1, len(self.bodies) + 1):
            self.identifiers.pop(sequence, None)
        del self.bodies[-count:], self.published_at[-count:], self.expiries_ms[-count:]


@dataclass(slots=True, eq=False)
class LogFacts:
    """One destination, as the disk knows it."""

    name: str
    kind: DestinationKind
    confirm: str = "disk"
    messages: dict[int, tuple[bytes, int]] = field(default_factory=dict)  # position -> producer, sequence
    positions: dict[tuple[bytes, int], int] = field(default_factory=dict)
    last: dict[tuple[bytes, int], int] = field(default_factory=dict)  # producer, lane -> its last sequence in the log
    damaged: set[int] = field(default_factory=set)  # positions in a spoiled batch
    set_aside: set[int] = field(default_factory=set)  # positions that the broker reported as unreadable
    over_limit: str = ""  # what happens past its limit; empty: it has none
    redeliveries_max: int = 0
    waiting: set[tuple[bytes, int]] = field(default_factory=set)  # producer, sequence of what was not due at first
    staged: set[tuple[bytes, int]] = field(default_factory=set)  # producer, sequence of what was staged at first
    identifiers: dict[str, tuple[bytes, int]] = field(default_factory=dict)  # deduplication id -> whose it is
    refusals: set[tuple[bytes, int]] = field(default_factory=set)  # producer, sequence, as the broker has said
    fields: dict[int, Fields] = field(default_factory=dict)  # position -> the message, as a selector sees it

    def has_twin(self, facts: ProducerFacts, sequence: int) -> bool:
        """Another message with the same deduplication id is stored."""
        twin = self.identifiers.get(facts.identifiers.get(sequence, ""))
        return twin is not None and twin != (facts.identity, sequence)


class Messages:
    def __init__(self) -> None:
        self.logs: dict[int, LogFacts] = {}
        self.by_name: dict[str, LogFacts] = {}
        self.producers: list[ProducerFacts] = []
        self.by_identity: dict[bytes, ProducerFacts] = {}
        self._arriving: set[int] = set()  # ids under which destinations are being copied
        self.dead: dict[tuple[str, str, int], str] = {}  # destination, subscription, position -> reason
        self._accepted: dict[tuple[int, bytes], int] = {}  # destination, producer -> last durable sequence
        self.node_refuses = False  # what is new, while it is full

    # -- from applications ---------------------------------------------------------------------------

    def producer(self, destination: str, *, is_staged: bool = False) -> ProducerFacts:
        facts = ProducerFacts(destination, is_staged=is_staged)
        self.producers.append(facts)
        return facts

    def identified(self, facts: ProducerFacts, identity: bytes) -> None:
        if identity in self.by_identity:
            raise Violation("producers have identities of their own", f"{identity.hex()} was given twice")
        facts.identity = identity
        self.by_identity[identity] = facts

    def confirmed(self, facts: ProducerFacts, sequence: int) -> None:
        if not facts.confirmed < sequence <= len(facts.bodies):
            raise Violation(
                "confirms are of what was sent, ascending",
                f"{facts.destination}: {sequence} after {facts.confirmed}, {len(facts.bodies)} sent",
            )
        facts.confirmed = sequence

    def refused(self, facts: ProducerFacts, first: int, last: int) -> None:
        log = self.by_name[facts.destination]
        if log.over_limit != "refuse" and not self.node_refuses:
            raise Violation("what may be stored is stored", f"{log.name}: {first} to {last} are refused")
        for sequence in range(first, last + 1):
            self._check_refused(log, facts.identity, sequence)
            if sequence in facts.refused or sequence <= facts.confirmed:
                raise Violation("an answer is given once", f"{log.name}: message {sequence} is refused afterwards")
            facts.refused.add(sequence)

    def _check_refused(self, log: LogFacts, identity: bytes, sequence: int) -> None:
        if (identity, sequence) in log.positions or (identity, sequence) in log.waiting:
            raise Violation("what is refused is nowhere", f"{log.name}: message {sequence} is stored")

    def log(self, name: str, kind: DestinationKind) -> LogFacts:
        if name not in self.by_name:
            self.by_name[name] = LogFacts(name, kind)
        return self.by_name[name]

    # -- from the disk -------------------------------------------------------------------------------

    def synced(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, DeleteRange):
                self._unsubscribed(operation)
            if not isinstance(operation, Put):
                continue
            if operation.table == Table.MOVE:
                self._arrival_synced(operation)
            elif operation.table == Table.BATCH and int.from_bytes(operation.key[:8], "big") in self._arriving:
                self._batch_copied(operation)
            elif operation.table == Table.BATCH and self.logs[int.from_bytes(operation.key[:8], "big")].name == DMQ:
                self._buried(Batch.trusted(operation.value))
            elif operation.table == Table.BATCH:
                self._batch_synced(operation)
            elif operation.table == Table.DELAYED:
                self._delayed_synced(operation)
            elif operation.table == Table.STAGED:
                batch = Batch.trusted(operation.value)
                log = self.logs[int.from_bytes(operation.key[:8], "big")]
                log.staged.update((batch.producer, sequence) for sequence in batch.sequences())
            elif operation.table == Table.PRODUCER:
                destination, identity = int.from_bytes(operation.key[:8], "big"), operation.key[8:]
                self._accepted[destination, identity] = int.from_bytes(operation.value[:8], "little")
            elif operation.table == Table.DESTINATION:
                record = msgspec.msgpack.decode(operation.value, type=DestinationRecord)
                identity_number = int.from_bytes(operation.key, "big")
                log = self.log(record.name, record.kind)
                log.confirm = record.confirm
                log.over_limit = record.over_limit if record.messages_max or record.bytes_max else ""
                log.redeliveries_max = record.redeliveries_max
                self.logs[identity_number] = log
                self._arriving.discard(identity_number)

    def _unsubscribed(self, deleted: DeleteRange) -> None:
        """A subscription is over: for another one of that name its dead may die again."""
        low = deleted.low
        if deleted.table != Table.SUBSCRIPTION or len(low) == 8 or deleted.high != low + b"\0":
            return  # others go with their destination, or to another group
        of = (self.logs[int.from_bytes(low[:8], "big")].name, low[8:].decode())
        self.dead = {grave: reason for grave, reason in self.dead.items() if grave[:2] != of}

    def _arrival_synced(self, put: Put) -> None:
        """A destination is being moved: its rows come under another id."""
        if put.key != PLACED_KEY:
            identity = msgspec.msgpack.decode(put.value, type=ArrivalRecord).identity
            self.logs[identity] = self.by_name[put.key.decode()]
            self._arriving.add(identity)

    def _batch_copied(self, put: Put) -> None:
        destination, end = int.from_bytes(put.key[:8], "big"), int.from_bytes(put.key[8:], "big")
        log, batch = self.logs[destination], Batch.trusted(put.value)
        for position, sequence in zip(range(end - batch.count, end), batch.sequences(), strict=True):
            if log.messages.get(position) != (batch.producer, sequence):
                what = f"position {position} is copied as message {sequence}"
                raise Violation("what is moved is what was there", f"{log.name}: {what}")

    def _buried(self, batch: Batch) -> None:
        headers = batch.headers() or []
        for index in range(batch.count):
            letter = read_map(headers[index])["dead_letter"]
            grave = (letter["destination"], letter["subscription"], letter["position"])
            if grave in self.dead:
                raise Violation("nobody dies twice", f"{grave[0]}{grave[1]}: position {grave[2]} is buried again")
            message = (batch.producer, batch.sequence(index))
            if self.by_name[grave[0]].messages.get(grave[2]) != message:
                raise Violation("the dead keep their names", f"{grave[0]}: position {grave[2]} is buried as {message}")
            self.dead[grave] = letter["reason"]

    def _delayed_synced(self, put: Put) -> None:
        log, batch = self.logs[int.from_bytes(put.key[:8], "big")], Batch.trusted(put.value)
        self._note_identifiers(log, batch)
        for sequence in batch.sequences():
            log.waiting.add((batch.producer, sequence))
            self._check_new(log, batch.producer, sequence)

    def _check_new(self, log: LogFacts, producer: bytes, sequence: int) -> None:
        facts = self.by_identity.get(producer)
        if facts is not None and sequence in facts.refused:
            self._check_refused(log, producer, sequence)

    def _note_identifiers(self, log: LogFacts, batch: Batch) -> None:
        """Of a deduplication id there is one message."""
        headers = batch.headers() if batch.columns & Columns.DEDUPLICATION else None
        for index, header in enumerate(headers or ()):
            identifier = read_map(header).get("deduplication_id")
            message = (batch.producer, batch.sequence(index))
            if identifier is not None and log.identifiers.setdefault(identifier, message) != message:
                raise Violation(
                    "of a deduplication id there is one message", f"{log.name}: {identifier} is stored once more"
                )

    def _batch_synced(self, put: Put) -> None:
        destination, end = int.from_bytes(put.key[:8], "big"), int.from_bytes(put.key[8:], "big")
        log = self.logs[destination]
        batch = Batch.trusted(put.value)
        producer, stream = batch.producer, (batch.producer, lane_of(end - 1))
        last = log.last.get(stream, 0)
        is_late = bool(batch.columns & Columns.DUE)  # some may have waited until they were due, and been overtaken
        self._note_identifiers(log, batch)
        if batch.columns & (Columns.PROPERTIES | Columns.PRIORITY):
            log.fields.update(zip(range(end - batch.count, end), BatchFields(batch).all(), strict=True))
        for position, sequence in zip(range(end - batch.count, end), batch.sequences(), strict=True):
            if position in log.messages:
                raise Violation(
                    "no duplicates in the log",
                    f"{log.name}: position {position} had message {log.messages[position][1]}, now {sequence}",
                )
            if (producer, sequence) in log.positions:
                first = log.positions[producer, sequence]
                raise Violation(
                    "no duplicates in the log", f"{log.name}: message {sequence} is at {first} and at {position}"
                )
            if sequence <= last and not is_late:
                raise Violation(
                    "order per producer and priority",
                    f"{log.name}: message {sequence} is stored at {position}, after {last}",
                )
            log.messages[position] = (producer, sequence)
            log.positions[producer, sequence] = position
            self._check_new(log, producer, sequence)
            last = max(last, sequence) if not is_late else last
        log.last[stream] = last

    def damaged(self, key: bytes, count: int) -> None:
        log = self.logs[int.from_bytes(key[:8], "big")]
        end = int.from_bytes(key[8:], "big")
        log.damaged.update(range(end - count, end))

    # -- from the broker -----------------------------------------------------------------------------

    def confirm_leaves(self, destination: int, identity: bytes, sequence: int, now: float) -> None:
        """The moment at which everything up to `sequence` has to be durable."""
        facts = self.by_identity.get(identity)
        log = self.logs[destination]
        confirmed_before = facts.confirmed_sent if facts is not None else sequence - 1
        for number in range(confirmed_before + 1, sequence + 1):
            if facts is not None:
                facts.confirmed_at[number] = now
            if facts is not None and facts.is_staged:
                if (identity, number) in log.staged:  # whatever the destination promises to others
                    continue
            elif log.confirm == "memory" or (identity, number) in log.positions or (identity, number) in log.waiting:
                continue
            if (identity, number) in log.refusals or (facts is not None and log.has_twin(facts, number)):
                continue
            # A topic without subscriptions stores nothing but how far its producers are.
            if log.kind == DestinationKind.TOPIC and self._accepted.get((destination, identity), 0) >= number:
                continue
            raise Violation("confirmed means durable", f"{log.name}: message {number} is confirmed and not on disk")
        if facts is not None:
            facts.confirmed_sent = max(facts.confirmed_sent, sequence)

    def refusal_leaves(self, destination: int, identity: bytes, first: int, last: int) -> None:
        self.logs[destination].refusals.update((identity, sequence) for sequence in range(first, last + 1))

    def broker_crashed(self, group: int | None = None) -> None:
        """What was confirmed from memory and had not reached the disk is gone: that is what `memory` means. In a
        cluster, of one group."""
        logs = {log.name: log for number, log in self.logs.items() if group is None or group_of(number) == group}
        for facts in self.producers:
            if facts.destination in logs:
                self._forgive(facts, logs[facts.destination], facts.confirmed_sent)

    def confirmed_late(self, destination: int, identity: bytes, sequence: int, now: float) -> None:
        """By a message manager that has a successor: durable as ever; of what was in its memory only, that one knows
        nothing."""
        facts = self.by_identity.get(identity)
        if facts is not None:
            self.confirm_leaves(destination, identity, sequence, now)
            self._forgive(facts, self.logs[destination], sequence)

    @staticmethod
    def _forgive(facts: ProducerFacts, log: LogFacts, confirmed: int) -> None:
        for sequence in range(1, confirmed + 1) if log.confirm == "memory" else ():
            if (facts.identity, sequence) not in log.positions:
                facts.forgiven.add(sequence)

    def unlabelled(self, producer: bytes, sequence: int, body: bytes) -> str:
        """Empty if that message was published with that body; else what is wrong."""
        facts = self.by_identity.get(producer)
        if facts is None:
            return "nobody published it"
        if sequence > len(facts.bodies) or facts.bodies[sequence - 1] != body:
            return "it is not what was published"
        return ""
