"""Goal: the bus's checkers can fail. Method: plant a bug in the protocol, and some seed among a few must catch it."""
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from angarium.core.bus.closing import Closing
from angarium.core.bus.datagram import Ack, Heartbeat
from angarium.core.bus.pacing import RepairBudget
from angarium.core.bus.receiving import ReceiveStream
from angarium.core.bus.repairing import Repairs
from angarium.core.bus.sending import SendStream
from angarium.core.bus.voice import Voice
from angarium.sim.bus_network import NetworkFaults
from angarium.sim.bus_world import BusWorld, BusWorldSettings
from angarium.sim.messages import Violation

Plant = Callable[[pytest.MonkeyPatch], None]
LOSSY = NetworkFaults(loss_chance=0.2, double_chance=0.1, overtake_chance=0.3)
LOSS = BusWorldSettings(senders=1, receivers=3, network=LOSSY, faults_s=1.0, sends_per_s=150.0, may_evict=False)
DYING = replace(LOSS, may_evict=True, senders=2, receivers=4, faults=("crash", "join"), faults_per_s=6.0, faults_s=2.0)
SLOW = replace(LOSS, may_evict=True, network=NetworkFaults(), faults=("freeze",), faults_s=3.0)
FLAPPING = replace(LOSS, may_evict=True, network=NetworkFaults(loss_chance=0.05), faults=("flap",), faults_per_s=8.0)
SEEDS_MAX = 12


def nothing_is_repaired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repairs, "take", lambda self, find, budget, now: ([], {}))


def repairs_have_no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RepairBudget, "spend", lambda self, size_bytes: None)
    patch.setattr(Repairs, "ask", _ask_without_patience)


def _ask_without_patience(self: Repairs, asker: bytes, sequences: list[int], *, ignored_s: float, now: float) -> int:
    self._asked.update(dict.fromkeys(sequences, asker))
    self._due_at = now
    return 0


def what_is_ahead_is_delivered_at_once(patch: pytest.MonkeyPatch) -> None:
    take = ReceiveStream.take

    def mutant(self: ReceiveStream, sequence: int, lag: int, datagram: bytes, end: int | None = None) -> str:
        reason = take(self, sequence, lag, datagram, end)
        if sequence in self._ahead:
            self._ready.append(self._ahead[sequence])
        return reason

    patch.setattr(ReceiveStream, "take", mutant)


def duplicates_are_taken(patch: pytest.MonkeyPatch) -> None:
    take = ReceiveStream.take

    def mutant(self: ReceiveStream, sequence: int, lag: int, datagram: bytes, end: int | None = None) -> str:
        if sequence == self.next - 1 and self.next > self.start:
            self.next -= 1
        return take(self, sequence, lag, datagram, end)

    patch.setattr(ReceiveStream, "take", mutant)


def receivers_acknowledge_one_too_many(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: ReceiveStream) -> bytes:
        self.next += self.next < self.end
        said = ack(self)
        self.next -= self.next <= self.end and self.next not in self._kept and self.next > self.start
        return said

    ack = ReceiveStream._ack
    patch.setattr(ReceiveStream, "_ack", mutant)


def heartbeats_do_not_say_how_far(patch: pytest.MonkeyPatch) -> None:
    heard = ReceiveStream.heard
    patch.setattr(ReceiveStream, "heard", lambda self, beat, now: heard(self, beat._replace(next=0), now))
    assert Heartbeat._fields[0] == "next"


def the_ring_forgets_what_one_receiver_has(patch: pytest.MonkeyPatch) -> None:
    highest = property(lambda self: max((r.next for r in self.receivers.values()), default=self.next))
    patch.setattr(SendStream, "floor", highest)


def repairs_are_sealed_anew(patch: pytest.MonkeyPatch) -> None:
    repair = SendStream.repair

    def mutant(self: SendStream, now: float) -> tuple[list[bytes], dict[bytes, list[bytes]]]:
        for_all, for_one = repair(self, now)
        return [d[:-1] + b"?" for d in for_all], {who: [d[:-1] + b"?" for d in ds] for who, ds in for_one.items()}

    patch.setattr(SendStream, "repair", mutant)


def nobody_is_told_of_eviction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SendStream, "refusal", lambda self, incarnation, join: None)


def survivors_do_not_wait_for_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Closing, "target", property(lambda self: self.stream.next))


def survivors_keep_what_lies_beyond_a_gap(patch: pytest.MonkeyPatch) -> None:
    freeze = ReceiveStream.freeze

    def mutant(self: ReceiveStream) -> None:
        ahead = dict(self._ahead)
        freeze(self)
        self._ahead.update(ahead)

    patch.setattr(ReceiveStream, "freeze", mutant)


def who_got_nothing_counts_as_having_got_all(patch: pytest.MonkeyPatch) -> None:
    heard = Closing.heard
    patch.setattr(Closing, "heard", lambda self, who, have, now: heard(self, who, have._replace(got=1), now))


def survivors_are_due_although_they_have_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Closing, "deadline", lambda self: min(self._repeat_at, self.stream.deadline() or self._repeat_at))


def nothing_is_kept_for_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReceiveStream, "kept", lambda self, sequences, count_max: [])


def who_was_out_for_a_moment_is_taken_for_the_same(patch: pytest.MonkeyPatch) -> None:
    acknowledged = SendStream.acknowledged

    def mutant(self: SendStream, incarnation: bytes, ack: Ack, counter: int, now: float) -> None:
        receiver = self.receivers.get(incarnation)
        if receiver is not None and not receiver.join:
            receiver.join = ack.join
        acknowledged(self, incarnation, ack, counter, now)

    patch.setattr(SendStream, "acknowledged", mutant)
    patch.setattr(SendStream, "refusal", lambda self, incarnation, join: None)


def sequences_start_again_with_the_channel(patch: pytest.MonkeyPatch) -> None:
    data = Voice.data
    patch.setattr(Voice, "data", lambda self, sequence, floor, body: data(self, 1 + sequence % 64, 1, body))


MUTATIONS: Sequence[tuple[Plant, BusWorldSettings]] = (
    (nothing_is_repaired, LOSS), (repairs_have_no_budget, LOSS), (what_is_ahead_is_delivered_at_once, LOSS),
    (duplicates_are_taken, LOSS), (receivers_acknowledge_one_too_many, LOSS), (heartbeats_do_not_say_how_far, LOSS),
    (the_ring_forgets_what_one_receiver_has, LOSS), (repairs_are_sealed_anew, LOSS),
    (nobody_is_told_of_eviction, SLOW), (survivors_do_not_wait_for_each_other, DYING),
    (survivors_keep_what_lies_beyond_a_gap, DYING), (who_got_nothing_counts_as_having_got_all, DYING),
    (nothing_is_kept_for_others, DYING), (survivors_are_due_although_they_have_all, DYING),
    (who_was_out_for_a_moment_is_taken_for_the_same, FLAPPING),
    (sequences_start_again_with_the_channel, LOSS),
)  # fmt: skip


@pytest.mark.parametrize("settings", (LOSS, DYING, SLOW, FLAPPING), ids=("loss", "dying", "slow", "flapping"))
def test_without_a_bug_nothing_is_caught(settings: BusWorldSettings) -> None:
    for seed in range(3):
        BusWorld(seed, settings).run()


@pytest.mark.parametrize("plant, settings", MUTATIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_caught(plant: Plant, settings: BusWorldSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            BusWorld(seed, settings).run()
        except Violation as caught:
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {plant.__name__} in {SEEDS_MAX} seeds")
