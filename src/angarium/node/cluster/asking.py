"""Questions to other nodes, and one composite answer: whoever does not answer in time is named.

A question to all goes to every node of the view. The answer says how many were expected, and which did not answer.
"""
import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from angarium.node.cluster.services import Answer, Question, encode

ANSWER_S_MAX = 1.0


@dataclass(slots=True)
class Composite:
    expected: int
    answers: dict[str, dict[str, object]] = field(default_factory=dict)  # by node
    missing: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Asked:
    waiting_for: set[str]
    composite: Composite
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Asking:
    """`send(node, message)`; `answer(question)`: what this node says."""

    def __init__(
        self, send: Callable[[str, bytes], None], answer: Callable[[Question], dict[str, object]]
    ) -> None:
        self._send = send
        self._answer = answer
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    async def ask(self, nodes: Sequence[str], command: str, *, timeout_s: float = ANSWER_S_MAX) -> Composite:
        number = next(self._numbers)
        asked = self._asked[number] = _Asked(set(nodes), Composite(len(nodes)))
        for node in nodes:
            self._send(node, encode(Question(number, command)))
        try:
            if nodes:
                await asyncio.wait_for(asked.done.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            del self._asked[number]
        asked.composite.missing = sorted(asked.waiting_for)
        return asked.composite

    def received(self, node: str, message: Question | Answer) -> None:
        if isinstance(message, Question):
            self._send(node, encode(Answer(message.number, "", "", self._answer(message))))
            return
        asked = self._asked.get(message.number)
        if asked is None or node not in asked.waiting_for:
            return
        asked.waiting_for.discard(node)
        asked.composite.answers[node] = message.result
        if not asked.waiting_for:
            asked.done.set()
