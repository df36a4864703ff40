"""Several witnesses of one broker, told in turn."""
from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.sim.broker import Witness


class Witnesses:
    def __init__(self, *witnesses: Witness) -> None:
        self._all = list(witnesses)

    def add(self, witness: Witness) -> None:
        self._all.append(witness)

    def to_manager(self, event: FromSession) -> None:
        for witness in self._all:
            witness.to_manager(event)

    def from_manager(self, command: ToSession) -> None:
        for witness in self._all:
            witness.from_manager(command)

    def reported(self, report: Report) -> None:
        for witness in self._all:
            witness.reported(report)

    def broker_started(self) -> None:
        for witness in self._all:
            witness.broker_started()

    def broker_stopped(self) -> None:
        for witness in self._all:
            witness.broker_stopped()
