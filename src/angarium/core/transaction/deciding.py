"""Decisions of this message manager for others: transactions that are committed here, and of which other groups have
parts that may not know it yet.

    committed here, in one write with this --> DECIDED --every participant has said CommitComplete--> forgotten

A decision is remembered as long as somebody may ask. Whoever is silent is told again every `in_doubt_s`, through any
client manager, for the coordinator may be dead. Of transactions that are not committed nothing is remembered: that
there is no decision is the answer (presumed abort), and from then on there will be none (`numbers.py`).
"""
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from angarium.core.destination.events import Command, ToSession, Write
from angarium.core.destination.locks import TransactionKey
from angarium.core.destination.pending import PendingWrite
from angarium.core.errors import Rejected
from angarium.core.ids import ANYBODY
from angarium.core.storage import Operation, Put, Table, delete_key
from angarium.core.transaction.repeating import Repeating
from angarium.core.wire import frames


@dataclass(slots=True)
class _Decision:
    outstanding: dict[int, None]  # groups
    is_durable: bool = False


class Decisions:
    def __init__(self, group: int, write: Callable[..., Write], *, decisions_max: int, in_doubt_s: float) -> None:
        self._group = group
        self._write = write
        self._decisions_max = decisions_max
        self._decisions: dict[TransactionKey, _Decision] = {}
        self._repeating: Repeating[TransactionKey] = Repeating(in_doubt_s)

    def __len__(self) -> int:
        return len(self._decisions)

    def restore(self, records: dict[bytes, bytes], *, now: float) -> None:
        for record, value in records.items():
            key = (record[:16], int.from_bytes(record[16:], "big"))
            participants = msgspec.msgpack.decode(value, type=list[int])
            self._decisions[key] = _Decision(dict.fromkeys(participants), is_durable=True)
            self._repeating.start(key, now)

    def is_decided(self, session: bytes, number: int) -> bool:
        """It is committed, and that is durable."""
        decision = self._decisions.get((session, number))
        return decision is not None and decision.is_durable

    def check_room(self) -> None:
        if len(self._decisions) >= self._decisions_max:
            reason = (
                f"{len(self._decisions):,} transactions wait for other replica groups to finish them, as many as "
                "decisions_max allows; bring those groups back"
            )
            raise Rejected("too-many-decisions", reason)

    def decide(self, session: bytes, number: int, participants: list[int]) -> list[Operation]:
        """To be written with what this group does of the transaction."""
        self._decisions[session, number] = _Decision(dict.fromkeys(participants))
        return [Put(Table.DECISION, decision_key(session, number), msgspec.msgpack.encode(participants))]

    def written(self, session: bytes, number: int, now: float) -> None:
        if (decision := self._decisions.get((session, number))) is not None and not decision.is_durable:
            decision.is_durable = True
            self._repeating.start((session, number), now)

    def completed(self, frame: frames.CommitComplete) -> list[Command]:
        key = (frame.session, frame.number)
        decision = self._decisions.get(key)
        if decision is None:
            return []
        decision.outstanding.pop(frame.group, None)
        if decision.outstanding:
            return []
        del self._decisions[key]
        self._repeating.stop(key)
        return [self._write([delete_key(Table.DECISION, decision_key(*key))], PendingWrite(), freeing=True)]

    def deadline(self) -> float | None:
        return self._repeating.deadline()

    def tick(self, now: float) -> list[Command]:
        return [
            ToSession(ANYBODY, frames.CommitFinal(session, number, group, self._group))
            for session, number in self._repeating.due(now)
            for group in self._decisions[session, number].outstanding
        ]


def decision_key(session: bytes, number: int) -> bytes:
    return session + number.to_bytes(8, "big")
