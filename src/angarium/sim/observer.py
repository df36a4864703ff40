"""Somebody who looks on: lists, describes and browses at random times, and disturbs nobody.

What it is shown has to be in the log, at that position, as it was published.
"""
from random import Random

from angarium.core.client import events
from angarium.core.wire.batch import Batch
from angarium.core.wire.lanes import place_of
from angarium.sim.client import SimClient
from angarium.sim.messages import Violation

_PAUSE_S_MEAN = 0.4
_FROM_THE_BEGINNING = 40  # of a hundred times: with the most urgent; else somewhere among the usual ones
_EXPECTED_CODES = frozenset({"", "unknown-destination"})


class Observer:
    def __init__(self, client: SimClient, chance: Random, destinations: list[str]) -> None:
        self._client = client
        self._chance = chance
        self._destinations = destinations
        self._browsed: dict[int, str] = {}  # request -> destination
        client.on_answer = self._answered
        self._look()

    def _look(self) -> None:
        if not self._client.is_alive:
            return
        name = self._chance.choice(self._destinations)
        match self._chance.choice(("list", "describe", "browse", "browse")):
            case "list":
                self._client.request("destination.list")
            case "describe":
                self._client.request("destination.describe", name=name)
            case "browse":
                position, count = self._chance.randrange(100), self._chance.randint(1, 20)
                place = 0 if position < _FROM_THE_BEGINNING else place_of(position)
                number = self._client.request("destination.browse", name=name, place=place, count=count)
                self._browsed[number] = name
        self._client.clock.after(self._chance.expovariate(1 / _PAUSE_S_MEAN), self._look)

    def _answered(self, answer: events.RequestAnswered) -> None:
        name = self._browsed.pop(answer.number, None)
        if answer.code not in _EXPECTED_CODES:
            raise Violation("whoever asks is answered", f"{name}: {answer.code}: {answer.reason}")
        if name is None or answer.code:
            return
        at = 0
        for part in answer.result["parts"]:
            self._check(name, part["position"], Batch.parse(answer.payload[at : at + part["bytes"]]))
            at += part["bytes"]

    def _check(self, name: str, position: int, batch: Batch) -> None:
        messages = self._client.ledger.messages
        for index in range(batch.count):
            message = (batch.producer, batch.sequence(index))
            wrong = messages.unlabelled(*message, batch.body(index))
            if wrong or messages.by_name[name].messages.get(position + index) != message:
                raise Violation(
                    "what is browsed is in the log", f"{name}: position {position + index}: {wrong or 'not there'}"
                )
