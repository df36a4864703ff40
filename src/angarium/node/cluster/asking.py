"""Questions to other nodes, and one composite answer: whoever does not answer is named, with the reason.

    asked --Answer--> replied
          --it is no longer in the cluster--> missing: gone
          --nothing for so long--> missing: timed out
"""
import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from angarium.node.administration import Composite, NodeReply
from angarium.node.cluster.services import Answer, Question, encode

ANSWER_S_MAX = 2.0
GONE = "gone: it is not in the cluster"
ASKED_MAX = 1_000  # questions under way; past it one more is not asked


@dataclass(slots=True)
class _Asked:
    waiting_for: set[str]
    is_here: Callable[[str], bool]
    composite: Composite = field(default_factory=Composite)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Asking:
    """`send(node, message)`; `is_here(node)`: it is in the cluster, unless whoever asks knows better."""

    def __init__(self, send: Callable[[str, bytes], None], is_here: Callable[[str], bool]) -> None:
        self._send = send
        self._is_here = is_here
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    async def ask(
        self, nodes: Iterable[str], command: str, arguments: dict[str, Any] | None = None, *,
        timeout_s: float = ANSWER_S_MAX, is_here: Callable[[str], bool] | None = None,
    ) -> Composite:  # fmt: skip
        number, asked = next(self._numbers), _Asked(set(nodes), is_here or self._is_here)
        if len(self._asked) >= ASKED_MAX:
            reason = f"not asked: {ASKED_MAX:,} questions are under way"
            return Composite(missing=dict.fromkeys(asked.waiting_for, reason))
        self._asked[number] = asked
        message = encode(Question(number, command, arguments or {}))
        for node in sorted(asked.waiting_for):
            self._send(node, message)
        self._check(asked)
        try:
            await asyncio.wait_for(asked.done.wait(), timeout_s)
        except TimeoutError:
            asked.composite.missing |= dict.fromkeys(asked.waiting_for, f"timed out: no answer within {timeout_s:g} s")
        finally:
            del self._asked[number]
        return asked.composite

    def answered(self, node: str, answer: Answer) -> None:
        asked = self._asked.get(answer.number)
        if asked is not None and node in asked.waiting_for:
            asked.waiting_for.discard(node)
            asked.composite.replies[node] = NodeReply(answer.code, answer.reason, answer.result)
            self._check(asked)

    def view_changed(self) -> None:
        for asked in self._asked.values():
            self._check(asked)

    def _check(self, asked: _Asked) -> None:
        for node in [node for node in asked.waiting_for if not asked.is_here(node)]:
            asked.waiting_for.discard(node)
            asked.composite.missing[node] = GONE
        if not asked.waiting_for:
            asked.done.set()
