"""Goal: the machine's interface: what it refuses, what it ignores, and what it does with a disk that is not whole."""
import pytest

from angarium.core.errors import ConfigError, LocalProtocolError, StorageCorrupt
from angarium.core.groups import decisions as d
from angarium.core.groups import events as e
from angarium.core.groups import messages as m
from angarium.core.groups import protocol as p
from angarium.core.groups.changes import ViewChanged, VotersChanged
from angarium.core.groups.configuration import Replica
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.log import ENTRY, IDENTITY, TERM
from angarium.core.groups.records import NodeRecord, Voter
from angarium.core.groups.settings import GroupSettings
from angarium.core.groups.watching import Watch
from angarium.core.storage import Put
from angarium.sim.groups.world import GroupsWorld, Shape

RECORD = NodeRecord("a", b"a1", ("a:1",), ("mm",))


def machine(name: str = "a", seeds: tuple[str, ...] = ("a",), *, keeps_log: bool = True) -> GroupServices:
    record = NodeRecord(name, f"{name}1".encode(), (), ())
    settings = GroupSettings(requests_max=2)
    return GroupServices(
        record, seeds=seeds, essential=b"", keeps_log=keeps_log, settings=settings, jitter=lambda: 0.5
    )


class Driver:
    """Writes at once and lets time pass."""

    def __init__(self, services: GroupServices, disk: dict[bytes, bytes] | None = None) -> None:
        self.services = services
        self.disk = {} if disk is None else disk
        self.told: list[e.Command] = []
        self.now = 0.0
        self.handle(e.Started(dict(self.disk), b"fresh"))

    def handle(self, event: e.Event) -> None:
        commands = self.services.handle(event, now=self.now)
        self.told += commands
        for command in commands:
            if isinstance(command, e.Persist):
                for operation in command.operations:
                    if isinstance(operation, Put):
                        self.disk[operation.key] = operation.value
                    else:
                        for key in [k for k in self.disk if operation.low <= k < operation.high]:
                            del self.disk[key]
                self.handle(e.Persisted(command.token))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.services.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.handle(e.Tick())
        self.now = end

    def of(self, kind: type) -> list[e.Command]:
        return [command for command in self.told if isinstance(command, kind)]


def test_one_node_alone_is_a_cluster_at_once() -> None:
    driver = Driver(machine())
    driver.run(1.0)
    assert driver.services.is_leader and [node.name for node in driver.services.state.nodes] == ["a"]
    driver.handle(e.Requested(1, d.SettingSet("k", b"v")))
    assert driver.of(e.RequestAnswered) == [e.RequestAnswered(1, "", "", driver.services.state.index)]
    assert len(driver.of(ViewChanged)) == len(driver.of(VotersChanged)) == 1


def test_a_leader_whose_own_loop_stood_still_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives everybody the full time anew; after so long that it may have been replaced it leads no more."""
    anew: list[float] = []
    monkeypatch.setattr(Watch, "lagged", lambda watch, now: anew.append(now))
    driver = Driver(machine())
    driver.run(1.0)
    raft, settings = driver.services.raft, GroupSettings()
    assert raft is not None and driver.services.is_leader and not anew
    term, due = raft.term, driver.services.deadline()
    assert due is not None
    driver.now = due + settings.lag_s * 1.01
    driver.handle(e.Tick())
    assert anew == [driver.now] and raft.term == term
    due = driver.services.deadline()
    assert due is not None
    driver.now = due + settings.election_s
    driver.handle(e.Tick())
    driver.run(3.0)
    assert driver.services.is_leader and raft.term > term


def test_it_comes_back_as_what_it_was() -> None:
    first = Driver(machine())
    first.run(1.0)
    first.handle(e.Requested(1, d.SettingSet("k", b"v")))
    again = Driver(machine(), first.disk)
    again.run(3.0)
    assert again.services.is_leader and again.services.state.settings["k"].value == b"v"
    assert again.services.raft is not None and again.services.raft.me.store == b"fresh"
    assert again.services.raft.term > 1


def test_a_node_that_leaves_alone_has_left() -> None:
    driver = Driver(machine())
    driver.run(1.0)
    driver.handle(e.Leave())
    assert driver.of(e.Left) == [e.Left()] and driver.services.state.nodes == ()


@pytest.mark.parametrize("missing", [IDENTITY, ENTRY + (2).to_bytes(8, "big")])
def test_a_disk_that_is_not_whole_does_not_vote(missing: bytes) -> None:
    driver = Driver(machine())
    driver.run(1.0)
    del driver.disk[missing]
    with pytest.raises(StorageCorrupt):
        machine().handle(e.Started(driver.disk, b"other"), now=0.0)


def test_a_term_that_cannot_be_read_is_not_taken_for_none() -> None:
    driver = Driver(machine())
    driver.run(1.0)
    driver.disk[TERM] = b"\xc1"
    with pytest.raises(StorageCorrupt, match="term"):
        machine().handle(e.Started(driver.disk, b"other"), now=0.0)


def test_started_comes_first_and_once() -> None:
    with pytest.raises(LocalProtocolError, match="comes first"):
        machine().handle(e.Tick(), now=0.0)
    driver = Driver(machine())
    with pytest.raises(LocalProtocolError, match="and once"):
        driver.handle(e.Started({}, b""))


def test_one_request_too_many_is_refused_and_changes_nothing() -> None:
    driver = Driver(machine("m", keeps_log=False))
    for number in (1, 2):
        driver.handle(e.Requested(number, d.SettingSet("k", b"v")))
        driver.handle(e.JoinGroup(f"net{number}"))
    for event in (e.Requested(3, d.SettingSet("k", b"v")), e.Requested(2, d.Nothing()), e.Requested(0, d.Nothing())):
        with pytest.raises(LocalProtocolError):
            driver.handle(event)
    with pytest.raises(LocalProtocolError, match="requests_max 2"):
        driver.handle(e.JoinGroup("net3"))
    driver.handle(e.JoinGroup("net1"))
    driver.handle(e.LeaveGroup("net1"))
    driver.handle(e.JoinGroup("net3"))


def test_only_the_leader_proposes_what_needs_judgement() -> None:
    driver = Driver(machine())
    driver.run(1.0)
    driver.handle(e.Requested(1, d.NodesGone((("a", b"a1"),), "malice")))
    driver.handle(e.Requested(2, d.SettingSet("k", bytes(200_000))))
    codes = [answer.code for answer in driver.of(e.RequestAnswered) if isinstance(answer, e.RequestAnswered)]
    assert codes == ["not-allowed", "too-long"]


def test_a_leader_of_an_earlier_term_tells_replicas_nothing() -> None:
    driver = Driver(machine("m", keeps_log=False))
    ask = m.FenceAsk("g", 1, Replica("m", b""))
    driver.handle(e.MessageReceived("a", p.FromLeader(5, ask)))
    driver.handle(e.MessageReceived("b", p.FromLeader(4, ask)))
    assert driver.of(e.ToReplica) == [e.ToReplica(ask)]


def test_a_node_that_finds_nobody_asks_less_and_less_often() -> None:
    driver = Driver(machine("m", ("a", "b", "c"), keeps_log=False))
    driver.run(30.0)
    assert 10 < len(driver.of(e.SendMessage)) < 80


def test_another_start_of_the_same_name_stops_this_one() -> None:
    driver = Driver(machine("m", keeps_log=False))
    driver.handle(e.MessageReceived("a", p.JoinRefused(b"m0", "replaced", "of an earlier start")))
    assert driver.of(e.StopNode) == []
    driver.handle(e.MessageReceived("a", p.JoinRefused(b"m1", "replaced", "gone")))
    assert driver.of(e.StopNode) == [e.StopNode("replaced", "gone")]


def test_a_record_of_another_node_is_refused() -> None:
    driver = Driver(machine())
    with pytest.raises(LocalProtocolError, match="stays as it started"):
        driver.handle(e.RecordChanged(NodeRecord("b", b"a1", (), ())))


def test_settings_that_would_unseat_every_leader_are_refused() -> None:
    with pytest.raises(ConfigError, match="election_s"):
        GroupSettings(heartbeat_s=0.5)
    with pytest.raises(ConfigError, match="suspect_after_s"):
        GroupSettings(suspect_after_s=0.3)
    with pytest.raises(ConfigError, match="beacon_s_max"):
        GroupSettings(beacon_s_max=0.1)


def test_a_voter_that_feeds_enough_sends_nodes_to_another() -> None:
    settings = GroupSettings(subscribers_max=1)
    world = GroupsWorld(1, Shape(voters=3, members=3), settings=settings, has_faults=False)
    world.settle()
    voters = {node.machine._subscription.voter for node in world.alive() if node.machine and node.name[0] == "m"}
    assert len(voters) == 3


def test_every_message_survives_its_encoding() -> None:
    for message in (
        p.ToLeader("m", p.Ask(1, "m", b"i", d.SettingSet("k", None))),
        p.FromLeader(3, m.ChangeRefused("g", 1, "c", "r", None)),
        p.Ask(1, "m", b"i", p.MovePrimary("g", 1, "n")), p.ToLeader("m", m.ShrinkAsk("g", 1, Replica("n", b""), ())),
        p.Append(1, Voter("a", b""), b"", b"", 0, 0, (p.Entry(1, 1, b"x"),), 0, 0.5),
    ):  # fmt: skip
        assert p.decode_message(p.encode_message(message)) == message
