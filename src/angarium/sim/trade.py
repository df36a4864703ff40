"""A world of trade: suppliers fill queues, traders move what follows from it to others in transactions, and receivers
consume there, release, and are redelivered to. Queues have limits, redelivery delays and limits, as the seed draws.

Beside the ledger it has three audits: `transactions`, `redeliveries` and `flow`.
"""
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from random import Random
from types import MappingProxyType

from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.core.storage import Operation
from angarium.core.wire.frames import DestinationKind
from angarium.sim.applications import Application, Place
from angarium.sim.checkers import Ledger
from angarium.sim.clock import Clock
from angarium.sim.durable import Change, DurableState
from angarium.sim.faults import Faults, Participant
from angarium.sim.flow import FlowAudit
from angarium.sim.redeliveries import RedeliveryAudit
from angarium.sim.transacted_applications import Supplier, Trader
from angarium.sim.transactions import TransactionAudit
from angarium.sim.world import World, WorldSettings

_AT_REST_EVERY_S = 0.05
_SETTLE_IN_S = 0.5
INPUTS, OUTPUTS = ("wheat", "wood"), ("bread", "boards")


class TradeAudit:
    """The witness that keeps the three audits up to date."""

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        messages = ledger.messages
        self._clock = clock
        self.durable = DurableState()
        self.transactions = TransactionAudit(messages, ledger.holdings, set(INPUTS))
        self.redeliveries = RedeliveryAudit(messages, self.durable)
        self.flow = FlowAudit(self.durable)
        self.on_change: list[Callable[[Change], None]] = []

    def to_manager(self, event: FromSession) -> None:
        self.transactions.to_manager(event)
        self.redeliveries.to_manager(event, self._clock.now)
        self.flow.to_manager(event)

    def from_manager(self, command: ToSession) -> None:
        self.transactions.from_manager(command)
        self.redeliveries.from_manager(command, self._clock.now)
        self.flow.from_manager(command)

    def synced(self, operations: Sequence[Operation]) -> None:
        change = self.durable.apply(operations)
        self.transactions.changed(change, self._clock.now)
        self.redeliveries.changed(change, self._clock.now)
        self.flow.changed(change, self._clock.now)
        for look in self.on_change:
            look(change)

    def reported(self, report: Report) -> None: ...

    def broker_started(self) -> None:
        self.redeliveries.broker_started()
        self.flow.broker_started()

    def broker_stopped(self) -> None: ...


class TradeWorld(World):
    _more_options: Mapping[str, object] = MappingProxyType({})  # of every queue

    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        super().__init__(seed, settings, is_traced=is_traced)
        self.audit = TradeAudit(self.clock, self.ledger)
        self.witnesses.add(self.audit)
        self.on_synced.append(self.audit.synced)
        self._identifiers: list[str] = []
        self._inputs: tuple[str, ...] = INPUTS
        self._outputs: tuple[str, ...] = OUTPUTS

    @property
    def trade_audit(self) -> TransactionAudit:
        return self.audit.transactions

    def _populate(self) -> Faults:
        chance = self.chance("trade")
        self._inputs, self._outputs = INPUTS[: chance.randint(1, 2)], OUTPUTS[: chance.randint(1, 2)]
        late_s = chance.choice((0.0, 0.0, 4.0))  # buyers that are late find everything full
        administrator = self.client("administrator")
        for name in chain(self._inputs, self._outputs):
            options = draw_options(chance, is_left=late_s > 0) | dict(self._more_options)
            administrator.request("destination.create", name=name, kind="queue", **options)
        self.clock.run_until(_SETTLE_IN_S)
        administrator.close()
        suppliers = chance.randint(1, 2)
        for number in range(suppliers):
            self._add_supplier(f"supplier-{number + 1}", self.settings.messages // suppliers // 2)
        for number in range(chance.randint(1, 3)):
            self._add_trader(f"trader-{number + 1}")
        for number in range(chance.randint(1, 2)):
            self.clock.after(late_s, partial(self._add_receiver, f"buyer-{number + 1}"))
        self._look_at_rest()
        return Faults(self, self.chance("faults"), self.settings.faults)

    def _look_at_rest(self) -> None:
        if self.broker.is_idle:
            self.audit.flow.at_rest()
        self.clock.after(_AT_REST_EVERY_S, self._look_at_rest)

    def _add_supplier(self, name: str, messages: int) -> None:
        self.applications.append(
            Supplier(
                self.client(name), self.chance(f"application {name}"), queues=self._inputs, messages=messages,
                serial=self._serial, identifiers=self._identifiers,
            )
        )  # fmt: skip

    def _add_trader(self, name: str) -> Trader:
        trader = Trader(
            self.client(name), self.chance(f"application {name}"), self.trade_audit,
            inputs=self._inputs, outputs=self._outputs,
        )  # fmt: skip
        self.applications.append(trader)
        return trader

    def _add_receiver(self, name: str, *, is_calm: bool = False) -> None:
        places = [Place(name, DestinationKind.QUEUE) for name in self._outputs]
        receiver = Application(
            self.client(name), self.clock, self.chance(f"application {name}"), produces=[], consumes=places,
            messages=0, serial=self._serial,
        )  # fmt: skip
        self.applications.append(receiver)
        if is_calm:
            receiver.calm_down()

    def replace(self, application: Participant) -> None:
        self._clients += 1
        if isinstance(application, Supplier):
            self._add_supplier(f"supplier-{self._clients}", application.messages_left)
            application.messages_left = 0
        elif isinstance(application, Trader):
            self._add_trader(f"trader-{self._clients}")
        else:
            self._add_receiver(f"buyer-{self._clients}")

    def _add_drainer(self) -> None:
        self._add_trader("last-trader").calm_down()
        self._add_receiver("last-buyer", is_calm=True)

    def _undone(self) -> Iterator[str]:
        yield from super()._undone()
        yield from self.audit.redeliveries.unfinished()
        if any(self.audit.durable.waiting()):
            yield "some messages are not due yet"


def draw_options(chance: Random, *, is_left: bool) -> dict[str, object]:
    """What an administrator chooses for a queue, which may be left alone for some time."""
    options: dict[str, object] = {
        "redeliveries_max": chance.choice((0, 0, 2, 4)),
        "redelivery_delay_ms": chance.choice((0, 0, 100, 700)),
    }
    if chance.random() < 0.6:
        options["messages_max"] = chance.choice((5, 20))
        options["over_limit"] = chance.choice(("block", "refuse", "oldest", "oldest" if is_left else "block"))
    return options
