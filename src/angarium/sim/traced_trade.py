"""A world of trade whose queues are traced: what is settled is traced in the write that settles it, and nothing else.

While a disk is full records wait, and that they do is noted; so only then may something that is settled have none.
"""
from collections.abc import Mapping
from types import MappingProxyType

from angarium.sim.durable import Change, DurableState, Place
from angarium.sim.messages import Violation
from angarium.sim.trade import TradeWorld
from angarium.sim.world import WorldSettings


class TraceAudit:
    def __init__(self, durable: DurableState) -> None:
        self._records = durable.records
        self.traced: set[Place] = set()  # as ended
        self.untraced = 0  # records that are missing, or may be
        self.was_held = False
        self._settled: set[Place] = set()

    def changed(self, change: Change) -> None:
        traced = set(change.traced)
        self._settled |= {place for place in change.settled if self._records[place[0]].traced}
        self.untraced += change.untraced
        self.was_held |= self.untraced > 0
        if len(traced) < len(change.traced) or traced & self.traced:
            raise Violation("a message ends once", f"traced again: {sorted(traced & self.traced)[:5]}")
        if early := sorted(traced - self._settled):
            raise Violation("what is traced is durable", f"{early[:5]} are traced as ended, and not settled")
        self.traced |= traced
        if not self.untraced and (missing := self._settled - self.traced):
            raise Violation("what is settled is traced", f"{sorted(missing)[:5]} are not")


class TracedTradeWorld(TradeWorld):
    _more_options: Mapping[str, object] = MappingProxyType({"traced": True})

    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        super().__init__(seed, settings, is_traced=is_traced)
        self.traces = TraceAudit(self.audit.durable)
        self.audit.on_change.append(self.traces.changed)
