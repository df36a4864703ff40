"""What was sent and what was received, compared by count and hash.

A body says who sent it and as which number, and the rest of it follows from that: so a receiver can tell a wrong byte
without having seen the sender.
"""
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from angarium.client.message import Message


def body_of(producer: str, number: int, body_bytes: int = 120) -> bytes:
    head = f"{producer}:{number:08d}:"
    filler = hashlib.blake2b(head.encode(), digest_size=32).hexdigest()
    return (head + filler * (body_bytes // len(filler) + 1))[:body_bytes].encode()


def sender_of(body: bytes) -> tuple[str, int]:
    producer, number, _ = body.split(b":", 2)
    return producer.decode(), int(number)


def digest(bodies: Iterable[bytes]) -> str:
    """Of all bodies, whatever their order; a body that is there twice counts twice."""
    total = hashlib.sha256()
    for body in sorted(bodies):
        total.update(hashlib.sha256(body).digest())
    return total.hexdigest()


def assert_same(received: Iterable[bytes], sent: Iterable[bytes]) -> None:
    got, want = list(received), list(sent)
    if len(got) == len(want) and digest(got) == digest(want):
        return
    missing, extra = set(want) - set(got), set(got) - set(want)
    twice = len(got) - len(set(got))
    shown = sorted(sender_of(body) for body in missing)[:5]
    raise AssertionError(
        f"sent {len(want)}, received {len(got)}: {len(missing)} missing (first {shown}), {len(extra)} never sent, "
        f"{twice} received twice"
    )


@dataclass
class Inbox:
    """What one session got, checked message by message."""

    name: str
    bodies: list[bytes] = field(default_factory=list)
    ids: set[bytes] = field(default_factory=set)
    redeliveries: dict[bytes, int] = field(default_factory=dict)  # body -> how often it was delivered before
    disorders: list[tuple[str, int, int]] = field(default_factory=list)  # producer, number, highest before it
    _positions: set[int] = field(default_factory=set)
    _highest: dict[str, int] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        producer, number = sender_of(message.body)
        assert message.body == body_of(producer, number, len(message.body)), f"{self.name}: {message} is not as sent"
        assert message.id not in self.ids, f"{self.name}: {producer} {number} delivered twice to this session"
        assert message.position not in self._positions, f"{self.name}: position {message.position} delivered twice"
        self.ids.add(message.id)
        self._positions.add(message.position)
        self.bodies.append(message.body)
        assert message.redelivered == (message.redelivery_count > 0)
        self.redeliveries[message.body] = message.redelivery_count
        highest = self._highest.get(producer, -1)
        if number < highest:
            self.disorders.append((producer, number, highest))
        self._highest[producer] = max(highest, number)
