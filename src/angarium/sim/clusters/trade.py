"""Trade in a whole cluster: queues wherever their names' slots are, and transactions over the groups of all of them."""
from collections.abc import Iterator, Sequence
from itertools import chain

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.storage import Operation
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.durable import DurableState
from angarium.sim.moving_audit import MovingAudit
from angarium.sim.spanning_audit import SpanningAudit
from angarium.sim.trade import INPUTS, OUTPUTS, TradeWorld
from angarium.sim.transacted_applications import Trader
from angarium.sim.world import WorldSettings

_MESSAGES = 80
_CREATE_S_MAX = 20.0


class ClusterTradeWorld(ClusterWorld, TradeWorld):
    # Some messages are due at an hour; and the audit takes each queue to stay where it is.
    spared: tuple[str, ...] = ("clock-set", "move-destination")

    def __init__(
        self, seed: int, settings: WorldSettings | None = None, *, shape: Shape | None = None, is_traced: bool = False
    ) -> None:
        super().__init__(seed, settings, shape=shape, is_traced=is_traced)
        self._groups: dict[str, int] = {}  # by name of the queue
        self.durable = DurableState()
        self.transactions = SpanningAudit(
            self.ledger.messages, self.ledger.holdings, set(INPUTS), self._group_of_name
        )
        self._identifiers = []
        self._inputs, self._outputs = INPUTS, OUTPUTS

    @property
    def trade_audit(self) -> SpanningAudit:
        return self.transactions

    def _group_of_name(self, name: str) -> int:
        """Slots are dealt once."""
        if name not in self._groups:
            service = next(n.front.service for n in self.nodes() if n.front is not None and n.front.service.is_placed)
            self._groups[name] = service.group_of_name(name)
        return self._groups[name]

    # -- what the witnesses are shown ------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        super().to_manager(event)
        self.transactions.to_manager(event)

    def from_manager(self, command: ToSession, token: int) -> None:
        self.transactions.from_manager(command)
        super().from_manager(command, token)

    def synced(self, group: int, operations: Sequence[Operation]) -> None:
        super().synced(group, operations)
        self.transactions.prepared_in(operations)
        self.transactions.changed_in(group, self.durable.apply(operations))

    def _add_trader(self, name: str) -> Trader:
        trader = super()._add_trader(name)
        trader.renew_chance = self.chance(f"renewing {name}").choice((0.0, 0.05, 0.3))
        return trader

    # -- a random run ----------------------------------------------------------------------------------

    def _settle_in(self) -> None:
        chance = self.chance("trade")
        administrator = self.client("administrator of queues")
        for name in chain(self._inputs, self._outputs):
            options: dict[str, object] = {"redelivery_delay_ms": chance.choice((0, 0, 100))}
            if name in OUTPUTS and chance.random() < 0.4:  # then some parts cannot be prepared
                options |= {"messages_max": chance.choice((5, 20)), "over_limit": chance.choice(("block", "refuse"))}
            administrator.request("destination.create", name=name, kind="queue", **options)
        self._wait(self._unmade, _CREATE_S_MAX, "queues are made")
        administrator.close()
        self._add_supplier("supplier-1", _MESSAGES)
        for number in range(chance.randint(1, 3)):
            self._add_trader(f"trader-{number + 1}")
        self._add_receiver("buyer-1")

    def _unmade(self) -> Iterator[str]:
        yield from (name for name in chain(self._inputs, self._outputs) if name not in self.ledger.messages.by_name)

    def _undone(self) -> Iterator[str]:
        yield from super()._undone()
        yield from self.transactions.unfinished()
        if any(self.durable.waiting()):
            yield "some messages are not due yet"


class MovingTradeWorld(ClusterTradeWorld):
    """Queues are moved between the groups, too."""

    spared = ("clock-set",)

    def __init__(
        self, seed: int, settings: WorldSettings | None = None, *, shape: Shape | None = None, is_traced: bool = False
    ) -> None:
        super().__init__(seed, settings, shape=shape, is_traced=is_traced)
        self.transactions = MovingAudit(
            self.ledger.messages, self.ledger.holdings, set(INPUTS), self._group_of_name
        )
