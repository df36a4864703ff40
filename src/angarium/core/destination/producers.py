"""The producers of one log: who may append, and which sequence each has reached.

A producer numbers its messages 1, 2, 3, ... The log remembers the last number of each producer, also across restarts,
so that resending is always safe: what is known is skipped, a gap is an error. Records of producers that closed cleanly
are dropped at once; of others the most recently used `producers_max` are kept.

What was refused is remembered with it: a client whose connection broke before it heard of a refusal is told again when
it resumes, before a Confirm could cover it.
"""
import struct
from dataclasses import dataclass, field
from itertools import islice, pairwise

import msgspec
from msgspec.structs import replace

from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import format_id

_RECORD = struct.Struct("<QqB")
_REFUSALS_MAX = 256  # remembered of one producer; past it neighbours become one, or the oldest is forgotten


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    first: int
    last: int
    code: str
    reason: str


_decode_refusals = msgspec.msgpack.Decoder(list[Refusal]).decode


@dataclass(slots=True)
class Producer:
    identity: bytes
    accepted: int = 0  # last sequence that was given a position
    confirmed: int = 0  # last sequence that is as durable as the destination promises
    used_ms: int = 0
    session: bytes | None = None  # who has it open
    number: int = 0
    attachment: bytes = b""  # with which it was opened: a commit that comes from an earlier one is void
    stage: tuple[str, int] | None = None  # query and batch: what it publishes is staged
    client: bytes = b""  # the connection that publishes, as it calls itself across reconnections
    refusals: list[Refusal] = field(default_factory=list)  # that its client may not have heard of

    def record(self) -> bytes:
        head = _RECORD.pack(self.accepted, self.used_ms, len(self.client)) + self.client
        return head + msgspec.msgpack.encode(self.refusals) if self.refusals else head

    def refuse(self, refusal: Refusal) -> None:
        self.refusals = [*self.refusals, refusal]
        if len(self.refusals) > _REFUSALS_MAX:
            self.refusals = _shortened(self.refusals)

    def unheard(self, confirmed: int) -> list[Refusal]:
        """What its client, to whom this much is confirmed, may not have heard of, and is durable; what it has heard is
        forgotten."""
        self.refusals = [refusal for refusal in self.refusals if refusal.last > confirmed]
        unheard = [
            replace(refusal, first=max(refusal.first, confirmed + 1), last=min(refusal.last, self.confirmed))
            for refusal in self.refusals
        ]
        return [refusal for refusal in unheard if refusal.first <= refusal.last]


class ProducerTable:
    def __init__(self, *, producers_max: int) -> None:
        self._producers_max = producers_max
        self._by_identity: dict[bytes, Producer] = {}  # least recently used first, among those that are not open
        self._by_session: dict[bytes, dict[int, Producer]] = {}

    def restore(self, identity: bytes, record: bytes) -> None:
        accepted, used_ms, client_bytes = _RECORD.unpack_from(record)
        client, rest = record[_RECORD.size :][:client_bytes], record[_RECORD.size + client_bytes :]
        refusals = _decode_refusals(rest) if rest else []
        restored = Producer(identity, accepted, accepted, used_ms, client=client, refusals=refusals)
        self._by_identity[identity] = restored

    def sort_restored(self) -> None:
        ordered = sorted(self._by_identity.values(), key=lambda producer: producer.used_ms)
        self._by_identity = {producer.identity: producer for producer in ordered}

    def __len__(self) -> int:
        return len(self._by_identity)

    def attached(self) -> list[Producer]:
        return [producer for numbers in self._by_session.values() for producer in numbers.values()]

    def of_session(self, session: bytes) -> list[Producer]:
        return list(self._by_session.get(session, {}).values())

    def open(self, session: bytes, number: int, identity: bytes, confirmed: int) -> tuple[Producer, list[bytes]]:
        """Open or resume; return the producer and the identities that were forgotten to make room."""
        producer = self._by_identity.pop(identity, None)
        forgotten: list[bytes] = []
        if producer is None:
            forgotten = self._make_room()
            # A producer that we no longer know goes on where it says it is.
            producer = Producer(identity, confirmed, confirmed)
        else:
            if producer.session is not None:
                self._unlink(producer.session, producer.number)
            # Confirmed from memory and then lost with a crash: it is not sent again, the log goes on behind it.
            producer.accepted = max(producer.accepted, confirmed)
            producer.confirmed = max(producer.confirmed, confirmed)
        producer.session, producer.number = session, number
        self._by_identity[identity] = producer
        self._by_session.setdefault(session, {})[number] = producer
        return producer, forgotten

    def _make_room(self) -> list[bytes]:
        surplus = len(self._by_identity) + 1 - self._producers_max
        if surplus <= 0:
            return []
        idle = (identity for identity, producer in self._by_identity.items() if producer.session is None)
        forgotten = list(islice(idle, surplus))
        if len(forgotten) < surplus:
            reason = (
                f"{len(self._by_identity):,} producers are connected, as many as producers_max {self._producers_max:,} "
                "allows; close some, or raise the limit"
            )
            raise Rejected("too-many-producers", reason)
        for identity in forgotten:
            del self._by_identity[identity]
        return forgotten

    def confirm(self, identity: bytes, sequence: int) -> Producer | None:
        """Note that the sequence is confirmed; None if that was known, or the producer no longer is."""
        producer = self._by_identity.get(identity)
        if producer is None or producer.confirmed >= sequence:
            return None
        producer.confirmed = sequence
        return producer

    def get(self, session: bytes, number: int) -> Producer | None:
        numbers = self._by_session.get(session)
        return None if numbers is None else numbers.get(number)

    def find(self, identity: bytes) -> Producer | None:
        return self._by_identity.get(identity)

    def client_of(self, identity: bytes) -> bytes:
        """Whose producer it is, as far as that is known."""
        producer = self._by_identity.get(identity)
        return b"" if producer is None else producer.client

    def first_new(self, producer: Producer, first: int, last: int) -> int | None:
        """The first of the sequences first..last that is new; None if all are known. A gap is the peer's error."""
        expected = producer.accepted + 1
        if first > expected:
            reason = f"producer {format_id(producer.identity)}: sequence {first} where {expected} is next"
            raise RemoteProtocolError("sequence-gap", reason)
        return None if last < expected else expected

    def detach(self, session: bytes, number: int, *, forget: bool) -> Producer | None:
        """The producer is no longer open; if closed by its client, it will never resume and is forgotten."""
        producer = self._unlink(session, number)
        if producer is not None:
            producer.session = None
            del self._by_identity[producer.identity]
            if not forget:
                self._by_identity[producer.identity] = producer  # used until now: the last to be forgotten
        return producer

    def _unlink(self, session: bytes, number: int) -> Producer | None:
        numbers = self._by_session.get(session, {})
        producer = numbers.pop(number, None)
        if not numbers:
            self._by_session.pop(session, None)
        return producer


def _shortened(refusals: list[Refusal]) -> list[Refusal]:
    """By one. Neighbours that were refused for the same reason say as much together; without any, the oldest goes."""
    for at, (one, other) in enumerate(pairwise(refusals)):
        if one.code == other.code and one.last + 1 == other.first:
            return [*refusals[:at], replace(other, first=one.first), *refusals[at + 2 :]]
    return refusals[1:]
