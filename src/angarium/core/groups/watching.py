"""The leader's eye on all nodes: who is silent, whether that is so, and when it is decided.

    HEARD --silent for suspect_after_s, or its connection broke--> ASKED --verify_s without an answer--> GONE
      ^                                                              |                                    |
      ├──── it answers, or another voter hears it ───────────────────┘                  batch_s: decided together
      └──── it is heard before that ──────────────────────────────────────────────────────────────────────┘

A refused connection is proof, and needs no asking. Whoever has just been slow itself accuses nobody: everyone gets
the full time anew.
"""
from dataclasses import dataclass

from angarium.core.groups.records import State
from angarium.core.groups.settings import GroupSettings

Named = tuple[str, bytes]  # node, incarnation


@dataclass(slots=True)
class Watched:
    incarnation: bytes
    heard_at: float
    asked_until: float | None = None
    is_gone: bool = False
    proposed_at: float | None = None  # that it is gone
    vouched_by: str = ""  # a voter that hears it while we do not


class Watch:
    def __init__(self, me: str, earlier_leader: str, settings: GroupSettings) -> None:
        self._me = me
        self._earlier_leader = earlier_leader  # its silence is why there is another: it is asked at once
        self._settings = settings
        self._nodes: dict[str, Watched] = {}
        self._decide_at: float | None = None
        self._next_at: float | None = None  # not after the next thing is due

    def take(self, state: State, now: float) -> None:
        """Watch who is in the view, and nobody else."""
        nodes: dict[str, Watched] = {}
        for node in state.nodes:
            if node.name != self._me:
                watched = self._nodes.get(node.name)
                is_same = watched is not None and watched.incarnation == node.incarnation
                heard_at = float("-inf") if node.name == self._earlier_leader else now
                nodes[node.name] = watched if watched and is_same else Watched(node.incarnation, heard_at)
        self._earlier_leader = ""
        self._nodes = nodes

    def deadline(self) -> float | None:
        """May be early: heartbeats do not move it, since there are many of them."""
        return self._next_at

    def _rearm(self) -> None:
        settings = self._settings
        times = [] if self._decide_at is None else [self._decide_at]
        for watched in self._nodes.values():
            if watched.proposed_at is not None:
                times.append(watched.proposed_at + settings.request_again_s)
            elif watched.asked_until is not None:
                times.append(watched.asked_until)
            elif not watched.is_gone:
                times.append(watched.heard_at + settings.suspect_after_s)
        self._next_at = min(times, default=None)

    # -- evidence --------------------------------------------------------------------------------------

    def heard(self, node: str, incarnation: bytes, now: float) -> None:
        watched = self._find(node, incarnation)
        if watched is not None:
            watched.heard_at = now
            watched.asked_until, watched.is_gone, watched.vouched_by = None, False, ""

    def vouched(self, voter: str, node: str, incarnation: bytes, age_s: float, now: float) -> str:
        """Another voter hears it; the text to report, once."""
        watched = self._find(node, incarnation)
        if watched is None or watched.is_gone or age_s >= self._settings.suspect_after_s:
            return ""
        watched.heard_at, watched.asked_until = now - age_s, None
        is_news = not watched.vouched_by
        watched.vouched_by = voter
        return f"node {node!r} is silent here, but voter {voter!r} hears it: it stays" if is_news else ""

    def lost(self, node: str, incarnation: bytes, *, is_refused: bool, now: float) -> list[Named]:
        """Its connection broke. Who is to be asked."""
        watched = self._find(node, incarnation)
        if watched is None or watched.is_gone:
            return []
        asked: list[Named] = []
        if is_refused:
            self._is_gone(watched, now)
        elif watched.asked_until is None:
            watched.asked_until = now + self._settings.verify_s
            asked.append((node, watched.incarnation))
        self._rearm()
        return asked

    def _find(self, node: str, incarnation: bytes) -> Watched | None:
        watched = self._nodes.get(node)
        return watched if watched is not None and incarnation in (watched.incarnation, b"") else None

    def lagged(self, now: float) -> None:
        for watched in self._nodes.values():
            watched.heard_at, watched.asked_until, watched.is_gone = now, None, False
        self._decide_at = None
        self._rearm()

    # -- decisions -------------------------------------------------------------------------------------

    def tick(self, now: float) -> tuple[list[Named], list[Named]]:
        """Who is to be asked, and who is to be decided gone."""
        asked = self._suspect(now)
        gone: list[Named] = []
        if self._decide_at is not None and now >= self._decide_at:
            self._decide_at = None
            for name, watched in self._nodes.items():
                if watched.is_gone:
                    watched.is_gone, watched.asked_until, watched.proposed_at = False, None, now
                    gone.append((name, watched.incarnation))
        self._rearm()
        return asked, gone

    def _suspect(self, now: float) -> list[Named]:
        settings = self._settings
        asked: list[Named] = []
        for name, watched in self._nodes.items():
            if watched.proposed_at is not None and now >= watched.proposed_at + settings.request_again_s:
                watched.proposed_at = None
            if watched.is_gone or watched.proposed_at is not None:
                continue
            if watched.asked_until is None:
                if now >= watched.heard_at + settings.suspect_after_s:
                    watched.asked_until = now + settings.verify_s
                    asked.append((name, watched.incarnation))
            elif now >= watched.asked_until:
                self._is_gone(watched, now)
        return asked

    def _is_gone(self, watched: Watched, now: float) -> None:
        watched.is_gone, watched.asked_until = True, None
        if self._decide_at is None:
            self._decide_at = now + self._settings.batch_s
