"""What the fake broker does with commits and recoveries."""
from typing import TYPE_CHECKING

from angarium.core.wire import frames
from angarium.core.wire.batch import Batch

if TYPE_CHECKING:
    from tests.unit.client.client_fake_broker import FakePeer
    from tests.unit.client.client_fake_log import Session


def on_commit(peer: "FakePeer", number: int, session: "Session", frame: frames.Commit, payload: bytes) -> None:
    """All or nothing; a number that was committed before is only answered."""
    broker = peer.broker
    last = broker.commits_done.get(session.identity, 0)
    if not session.transacted:
        broker.violations.append(f"commit {frame.number} in a session that is not transacted")
    committed = frames.Committed(frame.number)
    if frame.number <= last:
        broker.commits_repeated += 1
        session.unanswered.append(lambda: peer.send(number, committed))
        return
    batches, at = [], 0
    for producer, size in frame.publishes:
        batches.append((producer, Batch.parse(payload[at : at + size])))
        at += size
    if at != len(payload):
        broker.violations.append(f"commit of {at} bytes with a payload of {len(payload)}")
    reason = _obstacle(session, frame, batches)
    if reason:
        peer.send(number, frames.Aborted(frame.number, "commit-refused", reason))
        return
    for producer, batch in batches:
        log, identity = session.producers[producer]
        if batch.producer != identity or batch.first_sequence != log.sequences.get(identity, 0) + 1:
            broker.violations.append(f"commit with sequence {batch.first_sequence} of another producer or with a gap")
        log.append(batch)
    for consumer, ranges in frame.settles:
        subscription = session.consumers[consumer].subscription
        for low, high in ranges:
            for position in range(low, high):
                del subscription.held[position]
            subscription.settled.add(low, high)
    broker.commits_done[session.identity] = frame.number
    session.unanswered.append(lambda: peer.send(number, committed))


def _obstacle(session: "Session", frame: frames.Commit, batches: list[tuple[int, Batch]]) -> str:
    for producer, batch in batches:
        if producer not in session.producers:
            return f"producer {producer} is not open"
        if b"abort me" in batch.bodies():
            return "the fake aborts this"
    for consumer, ranges in frame.settles:
        if consumer not in session.consumers:
            return f"consumer {consumer} is not open"
        held = session.consumers[consumer].subscription.held
        holder = (session.identity, consumer)
        if any(held.get(position) != holder for low, high in ranges for position in range(low, high)):
            return "positions are not the consumer's"
    return ""


def on_recover(peer: "FakePeer", number: int, session: "Session", frame: frames.Recover) -> None:
    subscription = session.consumers[frame.consumer].subscription
    seen = {position for low, high in frame.seen for position in range(low, high)}
    holder = (session.identity, frame.consumer)
    for position in sorted(position for position, other in subscription.held.items() if other == holder):
        subscription.give_back(position, counted=position in seen)
    peer.send(number, frames.Recovered(frame.consumer, frame.number))
