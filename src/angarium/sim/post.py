"""A world of post: letters with priorities, properties and message groups; carriers that choose by selectors, on queues
and on the subscriptions of a topic, alone or shared.

Beside the ledger it has the audit of `choices`.
"""
from functools import partial
from random import Random

import msgspec

from angarium.core.client.gathered import Options
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns
from angarium.sim.applications import Application, Place
from angarium.sim.choices import ChoiceAudit
from angarium.sim.faults import Faults
from angarium.sim.world import World, WorldSettings

_REGIONS = ("EU", "US", "ASIA")
_SELECTORS = (
    "region = 'EU'", "region <> 'EU'", "weight BETWEEN 2 AND 6", "JMSPriority >= 6", "weight > 3 AND region LIKE '%S%'",
    "region IS NULL OR weight < 5",
)  # fmt: skip
_GROUPS = ("anna", "bert", "carl", "dora")


class PostWorld(World):
    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        super().__init__(seed, settings, is_traced=is_traced)
        self.audit = ChoiceAudit(self.clock, grace_s=self.settings.grace_s)
        self.witnesses.add(self.audit)
        chance = self.chance("post")
        self._priorities = chance.choice(((PRIORITY_DEFAULT,), (1, 4, 7), tuple(range(10))))
        self._group_chance = chance.choice((0.0, 0.4, 0.9))
        self._selector_chance = chance.choice((0.0, 0.3, 0.8))

    def _populate(self) -> Faults:
        chance = self.chance("population")
        self._places = [Place("letters", DestinationKind.QUEUE)]
        if chance.random() < 0.7:
            self._places.append(Place("bulletins", DestinationKind.TOPIC))
        clients = chance.randint(2, 5)
        for number in range(clients):
            self._add_application(f"client-{number + 1}", self.settings.messages // clients)
        return Faults(self, self.chance("faults"), self.settings.faults)

    def _add_application(self, name: str, messages: int) -> None:
        chance = self.chance(f"application {name}")
        produces = [place for place in self._places if chance.random() < 0.7]
        consumes = [self._choice(place, name, chance) for place in self._places for _ in range(chance.randint(0, 2))]
        application = Application(
            self.client(name), self.clock, chance, produces=produces, consumes=consumes,
            messages=messages if produces else 0, serial=self._serial,
            dress=partial(self._dress, self.chance(f"letters of {name}")),
        )  # fmt: skip
        self.applications.append(application)

    def _choice(self, place: Place, name: str, chance: Random) -> Place:
        if place.kind == DestinationKind.QUEUE:
            return Place(place.name, place.kind, selector=self._selector(chance))
        subscription = chance.choice(("", "team", "team", f"own-{name}"))
        # Of a name there is one selector: another one would be another subscription.
        selector = self._selector(self.chance(f"subscription {subscription}") if subscription else chance)
        return Place(place.name, place.kind, subscription, selector, shared=subscription == "team")

    def _selector(self, chance: Random) -> str:
        return chance.choice(_SELECTORS) if chance.random() < self._selector_chance else ""

    def _dress(self, chance: Random) -> Options:
        properties = {"weight": chance.randrange(10), "region": chance.choice(_REGIONS)}
        if chance.random() < 0.1:
            del properties["region"]
        options = Options(chance.choice(self._priorities), properties=msgspec.msgpack.encode(properties))
        if chance.random() >= self._group_chance:
            return options
        header = msgspec.msgpack.encode({"group": chance.choice(_GROUPS)})
        return options._replace(headers=header, announcements=int(Columns.GROUP))
