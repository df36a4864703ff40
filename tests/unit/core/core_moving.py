"""Two message managers on fake disks, and group services between them: a state to which decisions are applied, and of
which each group hears when a test says so."""
from collections.abc import Callable

from angarium.core.destination.events import DecideMove, DestinationSettings, FromSession, Placed, ToSession
from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.groups.configuration import Replica
from angarium.core.groups.deciding import applied
from angarium.core.groups.records import Limits, Placement, State
from angarium.core.ids import ANYBODY, group_of
from angarium.core.storage import Table, key_of
from angarium.core.transaction.coordinator import passed_on
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World
from tests.unit.core.core_streams import FakeFiles

SOURCE, TARGET = 1, 2
NAMES = {SOURCE: "g", TARGET: "h"}
_REPLICAS = {SOURCE: Replica("x", b"x" * 16), TARGET: Replica("y", b"y" * 16)}


class Pair:
    def __init__(self, settings: DestinationSettings | None = None) -> None:
        self.worlds = {number: World(settings, number=number, files=FakeFiles()) for number in NAMES}
        self.target._last_identity = 1_000  # sessions of one cluster are known by different ids
        self.state = State()
        decisions: list[d.AnyDecision] = [d.VotersSet((), d.Founding(b"cluster", b"", Limits()))]
        decisions += [d.GroupConfigured(NAMES[number], (_REPLICAS[number].node,)) for number in NAMES]
        decisions += [d.GroupFormed(NAMES[number], (_REPLICAS[number],), b"1") for number in NAMES]
        for decision in (*decisions, d.SlotsDealt(("g",))):
            self._apply(decision)
        self.refusals: list[str] = []  # of decisions
        for number in NAMES:
            self.hear(number)

    @property
    def source(self) -> World:
        return self.worlds[SOURCE]

    @property
    def target(self) -> World:
        return self.worlds[TARGET]

    @property
    def placement(self) -> Placement:
        return self.state.placement

    # -- group services ------------------------------------------------------------------------------------

    def _apply(self, decision: d.AnyDecision) -> None:
        self.state = applied(self.state, decision, self.state.index + 1)

    def decide(self, decision: d.AnyDecision) -> None:
        self._apply(decision)

    def begin(self, name: str = "q", group: int = TARGET) -> None:
        self.decide(d.MoveBegun(name, NAMES[group]))

    def epoch(self, number: int) -> int:
        return self.state.groups[NAMES[number]].epoch

    def hear(self, number: int) -> None:
        """The group learns what is decided."""
        self.worlds[number].tell(Placed(self.placement, self.epoch(number)))

    def _decided(self, number: int, command: DecideMove) -> None:
        name, move = command.name, command.number
        ended = d.MoveEnded(name, move, command.code, command.reason)
        try:
            self._apply(ended if command.code else d.MoveDone(name, move, self.epoch(number)))
        except Rejected as refusal:
            self.refusals.append(refusal.code)

    # -- what goes between ---------------------------------------------------------------------------------

    def step(self, number: int, *, is_lost: bool = False) -> bool:
        """The next thing that this group has asked for; `is_lost`: it does not arrive."""
        if not self.worlds[number].moving:
            return False
        command = self.worlds[number].moving.popleft()
        if is_lost:
            return True
        if isinstance(command, DecideMove):
            self._decided(number, command)
        else:
            self.pass_on(command)
        return True

    def pass_on(self, command: ToSession) -> None:
        """As any client manager does."""
        passed = passed_on(command.frame, command.payload)
        assert passed is not None and command.session == ANYBODY
        group = group_of(passed.destination)
        self.worlds[group].tell(FromSession(ANYBODY, passed.destination, passed.frame, passed.payload))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Whatever is to be done, as long as there is something."""
        while not until() and (self.step(SOURCE) or self.step(TARGET)):
            pass

    def move(self, name: str = "q", group: int = TARGET) -> None:
        """Wholly, and everybody hears of it."""
        self.begin(name, group)
        for _ in range(2):
            for number in NAMES:
                self.hear(number)
            self.run()

    def crash_at(self, step: int, victim: int, *, then_s: int) -> None:
        """A move of so many steps, then one of the two dies and is promoted anew; then all goes on for so long."""
        self.begin()
        self.hear(SOURCE)
        self.hear(TARGET)
        for _ in range(step):
            self.step(SOURCE) or self.step(TARGET)
        self.worlds[victim].moving.clear()
        self.crash(victim)
        for _ in range(then_s):
            self.run()
            for number in (SOURCE, TARGET):
                self.hear(number)
                self.worlds[number].advance(1.0)

    def crash(self, number: int, kept: int = 0) -> None:
        """Its message manager, which is promoted anew; of the writes that wait the first `kept` were durable."""
        group, replica = NAMES[number], _REPLICAS[number]
        self.decide(d.GroupPromoted(group, self.epoch(number), (replica,), b"2"))
        self.worlds[number] = self.worlds[number].restarted(kept=kept)
        self.hear(number)

    # -- what is where -------------------------------------------------------------------------------------

    def made_before(self, number: int, name: str) -> None:
        """It is there though its name does not belong there, nor was it moved."""
        world = self.worlds[number]
        placement, world.manager.moves.placement = world.manager.moves.placement, Placement()
        world.locate(name)
        world.manager.moves.placement = placement

    def has(self, number: int, name: str = "q") -> bool:
        return self.worlds[number].manager.find(name) is not None

    def rows(self, number: int, identity: int) -> int:
        """Of that destination, in the store."""
        tables = self.worlds[number].disk.tables
        skipped = (Table.NODE, Table.MOVE, Table.TRANSACTION)
        return sum(
            key[:8] == key_of(identity) for table, rows in tables.items() if table not in skipped for key in rows
        )

    def locate(self, number: int, name: str = "q") -> bytes:
        """Somebody asks for it there; the session that did."""
        session = self.worlds[number].session()
        self.worlds[number].frame(session, 0, frames.Locate(name, DestinationKind.QUEUE))
        return session

    def located(self, number: int, session: bytes) -> int:
        found = self.worlds[number].received(session, frames.Located)
        return found[-1].destination if found else 0
