"""Worlds of post and of trade on a node that has limits of its own, of every policy.

    post     "block", "refuse" or "oldest"; whoever consumes makes room
    trade    "oldest": a trader cannot sell where nothing is taken, and buys only to sell, so of the other policies such
             a market would die

The dead message queue blocks, refuses or drops its oldest when it is full, as the seed draws; an undertaker discards
the dead now and then, else nobody would go on who is blocked for them.

Beside the audits of these worlds there is one of the node's limits:
- room is made for what is durable and too much, and for nothing else: after every write by which somebody has died of
  the node's limits the node holds as much as it may, on disk (trade, where no message is large);
- at rest it holds no more, or every open producer was told to wait, or what is new is refused.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.core.destination.message_manager import MessageManager
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.wire import frames
from angarium.sim.client import SimClient
from angarium.sim.durable import Change, DurableState
from angarium.sim.messages import Messages, Violation
from angarium.sim.post import PostWorld
from angarium.sim.trade import TradeWorld
from angarium.sim.world import World, WorldSettings, draw_settings

_UNDERTAKER_EVERY_S = 0.4
_AT_REST_EVERY_S = 0.05
REASON = "node-limit"


class NodeAudit:
    def __init__(self, settings: WorldSettings, messages: Messages) -> None:
        self._settings = settings
        self._messages = messages
        self.seen: Counter[str] = Counter()
        self.broker_started()

    def broker_started(self) -> None:
        self._is_blocked: dict[tuple[bytes, int], bool] = {}  # producers that are open

    def broker_stopped(self) -> None: ...

    def reported(self, report: Report) -> None:
        self.seen[report.code] += 1

    def to_manager(self, event: FromSession) -> None:
        if isinstance(event.frame, frames.SessionEnded):
            for key in [key for key in self._is_blocked if key[0] == event.session]:
                del self._is_blocked[key]
        elif isinstance(event.frame, frames.ProducerClose):
            self._is_blocked.pop((event.session, event.frame.producer), None)

    def from_manager(self, command: ToSession) -> None:
        frame, session = command.frame, command.session
        match frame:
            case frames.ProducerOpened(number):
                self._is_blocked[session, number] = False
            case frames.ProducerClosed(number):
                self._is_blocked.pop((session, number), None)
            case frames.Block(number, code):
                self._is_blocked[session, number] = True
                self.seen["blocked"] += code == "node-full"
            case frames.Unblock(number):
                self._is_blocked[session, number] = False
            case frames.Refuse(code="node-full"):
                self.seen["refused"] += 1

    def changed(self, change: Change, durable: DurableState) -> None:
        dead = [place for place in change.buried if self._messages.dead.get((place[0], "", place[1])) == REASON]
        self.seen["died"] += len(dead)
        held = sum(len(found) for queue, found in durable.unsettled.items() if queue != DMQ)
        held += sum(1 for _ in durable.waiting())
        if dead and 0 < held < self._settings.node_messages_max and not self._settings.node_bytes_max:
            raise Violation("nobody dies in vain", f"{dead[:3]}: the node holds {held} messages after it")

    def at_rest(self, manager: MessageManager) -> None:
        """Nothing is under way in the broker."""
        settings = self._settings
        makes_room = manager.node_limits.makes_room
        described = [d for d in manager.destinations.values() if d.record.name != DMQ or not makes_room]
        held = [d.publishing.limits.held() for d in described]
        messages, stored_bytes = sum(each[0] for each in held), sum(each[1] for each in held)
        limits = [(messages, settings.node_messages_max), (stored_bytes, settings.node_bytes_max)]
        if not any(limit and found > limit for found, limit in limits):
            return
        self.seen["too much"] += 1
        if manager.node_limits.refusal is not None or all(self._is_blocked.values()):
            return
        # Who holds messages is left with them. Of a topic, and of bytes, more is needed to make room than what is free.
        queues = [d for d in described if d.state.is_queue and d.record.buries]
        free = sum(subscription.free_count(d.log) for d in queues for subscription in d.subscriptions)
        if not makes_room or (free and messages > settings.node_messages_max > 0):
            raise Violation("a node keeps its limits", f"{messages} messages, {stored_bytes} bytes; one was not told")


def draw_limits(seed: int, settings: WorldSettings, policies: Sequence[str]) -> WorldSettings:
    chance = Random(f"{seed} node limits")
    by_bytes = chance.random() < 0.25
    return replace(
        settings,
        node_messages_max=0 if by_bytes else chance.choice((6, 15, 40)),
        node_bytes_max=chance.choice((2_000, 8_000)) if by_bytes else 0,
        node_over_limit=chance.choice(policies),
    )


class Undertaker:
    """An administrator who says what the dead message queue does when it is full, and looks after it."""

    def __init__(self, world: World, over_limit: str) -> None:
        self._world = world
        self._client: SimClient | None = None
        self._over_limit = over_limit
        self._come()

    def _come(self) -> None:
        self._client = self._world.client("undertaker")
        self._client.request("destination.alter", name=DMQ, over_limit=self._over_limit)
        self._world.clock.after(_UNDERTAKER_EVERY_S, self._look)

    def _look(self) -> None:
        if self._client is not None and self._client.is_alive:
            self._client.request("dmq.discard")
            self._world.clock.after(_UNDERTAKER_EVERY_S, self._look)

    def leave(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class _Crowded(World):
    """What both have in common."""

    node_audit: NodeAudit
    _undertaker: Undertaker

    def _crowd(self) -> None:
        self.node_audit = NodeAudit(self.settings, self.ledger.messages)
        self.witnesses.add(self.node_audit)
        self.ledger.expected.add("node-full")
        if self.settings.node_over_limit == "oldest":
            self.ledger.expected.add("node-makes-room")
        over_limit = self.chance("undertaker").choice(("block", "refuse", "oldest"))
        self.ledger.messages.node_refuses = "refuse" in (self.settings.node_over_limit, over_limit)
        self._undertaker = Undertaker(self, over_limit)
        self._look_at_node()

    def _look_at_node(self) -> None:
        if self.broker.is_idle and self.broker.node is not None:
            self.node_audit.at_rest(self.broker.node.message_manager)
        self.clock.after(_AT_REST_EVERY_S, self._look_at_node)

    def leave(self) -> None:
        self._undertaker.leave()
        super().leave()


class CrowdedPostWorld(_Crowded, PostWorld):
    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        drawn = draw_limits(seed, settings or draw_settings(seed), ("block", "refuse", "oldest", "oldest"))
        super().__init__(seed, drawn, is_traced=is_traced)
        self._crowd()


class CrowdedTradeWorld(_Crowded, TradeWorld):
    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        super().__init__(seed, draw_limits(seed, settings or draw_settings(seed), ("oldest",)), is_traced=is_traced)
        self._crowd()
        self.audit.flow.node_makes_room = True
        self.audit.flow.dying = lambda: self.audit.durable.dying(self.disk.unsynced())
        self.audit.on_change.append(lambda change: self.node_audit.changed(change, self.audit.durable))
