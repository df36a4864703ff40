"""How a session acknowledges: what its consumers have handed out and nobody has settled, and when that is settled.

| `acknowledge` | settled |
|---|---|
| individual | by the application, each message by itself; nothing is kept here |
| auto | when the next one is asked for, when the callback has returned, or when the consumer is closed |
| duplicates-ok | the same, but many at a time: after a crash more of them may come again |
| client | by `Message.acknowledge` or `Session.acknowledge`: all that the session has handed out so far |
| (transacted) | by `Session.commit`, all of them; `rollback` gives them back |

In the last two the application may take more than the prefetch before it acknowledges: the consumer's window then
grows with what it has taken, to `PREFETCH_MAX`; but not while the application has set the prefetch to 0.
"""
from typing import TYPE_CHECKING, Literal

from angarium.client.message import Message
from angarium.core.client.consumer import PREFETCH_MAX
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.ranges import Range, RangeSet

if TYPE_CHECKING:
    from angarium.client.consumer import Consumer

Acknowledge = Literal["auto", "client", "individual", "duplicates-ok"]
LAZY_MESSAGES_MAX = 256


class Taken:
    """What one consumer has handed out and nobody has settled, in order."""

    settles_by_itself = True
    keeps = False  # until the session says so

    def __init__(self, consumer: "Consumer", prefetch: int) -> None:
        self.messages: list[Message] = []
        self.consumer = consumer
        self.prefetch = prefetch  # as the application has it

    def asked(self) -> None:
        """The application asks for the next one: it is done with those before."""
        self.settle_all()

    def starving(self) -> None:
        """It has to wait for it."""

    def settle_all(self) -> None:
        messages, self.messages = self.messages, []
        for message in messages:
            if not message.outcome:
                message.settle()

    def forget(self) -> None:
        """They are settled, or have gone back."""
        self.messages = []

    def end(self, *, is_done: bool) -> None:
        """Where the application has no say, they are settled; or they go back with the close, since an exception says
        that it did not get through with them."""
        if self.settles_by_itself:
            (self.settle_all if is_done else self.forget)()

    def ranges(self) -> list[Range]:
        taken = RangeSet()
        for message in self.messages:
            taken.add(message.position, message.position + 1)
        return list(taken)


class TakenLazily(Taken):
    def asked(self) -> None:
        if len(self.messages) >= min(LAZY_MESSAGES_MAX, (self.prefetch + 1) // 2):
            self.settle_all()

    def starving(self) -> None:
        self.settle_all()


class TakenUntilTold(Taken):
    settles_by_itself = False
    keeps = True

    def asked(self) -> None:
        pass

    def starving(self) -> None:
        self.messages = [message for message in self.messages if not message.outcome]
        count = len(self.messages)
        if count >= PREFETCH_MAX:
            raise LocalProtocolError(
                f"consumer of '{self.consumer.destination}': {count:,} messages were taken and neither "
                "acknowledged nor committed: do that first"
            )
        if count >= self.consumer.prefetch and self.prefetch:
            self.consumer.resize(min(PREFETCH_MAX, count + self.prefetch))

    def settle_all(self) -> None:
        super().settle_all()
        self._shrink()

    def forget(self) -> None:
        super().forget()
        self._shrink()

    def _shrink(self) -> None:
        if self.consumer.prefetch > self.prefetch:
            self.consumer.resize_soon(self.prefetch)


_TAKEN: dict[str, type[Taken] | None] = {
    "individual": None, "auto": Taken, "duplicates-ok": TakenLazily, "client": TakenUntilTold,
}  # fmt: skip


def check_mode(acknowledge: str) -> None:
    if acknowledge not in _TAKEN:
        raise Rejected("bad-acknowledge", f"acknowledge {acknowledge!r}: use one of {', '.join(_TAKEN)}")


def taken_by(consumer: "Consumer", prefetch: int, acknowledge: str, transacted: bool) -> Taken | None:
    """For a new consumer; None if the application settles each message itself."""
    kind = TakenUntilTold if transacted else _TAKEN[acknowledge]
    return kind(consumer, prefetch) if kind is not None else None
