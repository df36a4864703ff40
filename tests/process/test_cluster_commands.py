"""Goal: commands that cannot be done end in time, with a sentence that says why and whom to start; those that can are
done when they end.
Method: real processes, one or all copies of a group killed."""
import asyncio
import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import angarium
from angarium.admin.timed import REQUEST_S_MAX
from angarium.cli import failure
from angarium.cli.commands import app
from tests.process.cli_node import run
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S

WAITING = "has no primary: it waits for b1, which alone has all that was confirmed; start it"


class Done(NamedTuple):
    code: int
    out: str
    err: str


def command(capfd: pytest.CaptureFixture[str], cluster: Cluster, *arguments: str) -> Done:
    """In this process: starting Python for each would take longer than what is tested."""
    given = [*arguments, "--address", ",".join(cluster.addresses)]
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        failure.run(lambda: app(given, prog_name="angarium", standalone_mode=False))
    return Done(int(ended.value.code or 0), *capfd.readouterr())


async def _names(cluster: Cluster) -> dict[str, str]:
    """For each group, a name that belongs there."""
    found: dict[str, str] = {}
    async with angarium.connect(cluster.addresses) as connection:
        for number in range(100):
            place = (await connection.request("cluster.where", {"name": f"queue{number}"})).result
            found.setdefault(place["group"], f"queue{number}")
    return found


async def _send_to_both(cluster: Cluster) -> dict[str, str]:
    """And let one of each die."""
    names = await _names(cluster)
    async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
        for name in names.values():
            await session.send(name, b"dead")
            await session.send(name, b"one")
            message = await session.receive(name)
            assert message is not None
            message.reject()
        await session.sync()
    return names


def _check_dead(capfd: pytest.CaptureFixture[str], cluster: Cluster, names: dict[str, str]) -> None:
    """Each group has its own, and all are meant."""
    listed = json.loads(command(capfd, cluster, "dmq", "ls", "--json").out)
    assert {group["destination"] for group in listed} == set(names.values())
    assert json.loads(command(capfd, cluster, "describe", "_DMQ", "--json").out)["messages"] == 2
    assert len(command(capfd, cluster, "browse", "_DMQ").out.splitlines()) == 2
    assert command(capfd, cluster, "alter", "_DMQ", "--messages-max", "99").code == 0
    limits = [json.loads(command(capfd, cluster, "describe", name, "--json").out) for name in ("_DMQ.1", "_DMQ.2")]
    assert [each["messages_max"] for each in limits] == [99, 99]
    received = command(capfd, cluster, "receive", "_DMQ", "--timeout", "0")
    assert (received.code, received.out.split()) == (0, ["dead", "dead"])


def test_commands_end_when_a_group_has_no_primary(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And say why; and what the other group has is served."""
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=1) as cluster:
        names = asyncio.run(_send_to_both(cluster))
        _check_dead(capfd, cluster, names)
        cluster.kill("b1")
        cluster.kill("cm2")
        for name, *options in (
            ["describe"], ["explain"], ["browse"], ["purge", "--yes"], ["receive", "--timeout", "1"],
            ["send", "x", "--timeout", "1"],
        ):  # fmt: skip
            began = time.monotonic()
            done = command(capfd, cluster, name, names["b"], *options)
            assert time.monotonic() - began < 0.7 * REQUEST_S_MAX, "it is told, and does not wait until nobody answers"
            assert done.code == 1 and WAITING in done.err and done.out == "", name
        listed = command(capfd, cluster, "ls", "--json")
        assert listed.code == 1 and WAITING in listed.err
        assert [each["name"] for each in json.loads(listed.out) if each["name"][0] != "_"] == [names["a"]]
        _check_status(command(capfd, cluster, "cluster", "status"), cluster)


def _check_status(done: Done, cluster: Cluster) -> None:
    """It names who is missing."""
    assert done.code == 1 and WAITING in done.err and "node cm2 cannot be reached" in done.err
    rows = {line.split()[0]: line for line in done.out.splitlines()[1:]}
    assert list(rows) == ["a1", "b1", "cm1", "cm2"], "in order, and nobody left out"
    assert "in sync" in rows["a1"] and "gone" in rows["b1"] and "primary" not in rows["b1"] and "gone" in rows["cm2"]
    assert cluster.addresses[0] in rows["cm1"]


def _check_completion(cluster: Cluster) -> None:
    """Of what only a cluster has."""
    for words, offered in (
        ("cluster drain a", b"a1 a2 a3"), ("cluster move-primary ", b"a"), ("cluster move-primary a cm", b"cm1"),
        ("cluster set-voters a1 a3", b"a3"), ("admin node.status --node c", b"cm1"),
    ):  # fmt: skip
        asked = f"angarium {words}"
        word = str(len(asked.split(" ")) - 1)
        found = run(_ANGARIUM_COMPLETE="complete_bash", COMP_WORDS=asked, COMP_CWORD=word,
                    ANGARIUM_ADDRESS=cluster.addresses[0])  # fmt: skip
        assert found.stdout.split() == offered.split(), words


def test_changes_are_done_when_the_command_ends(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, copies=3) as cluster:

        def done(*arguments: str) -> Done:
            return command(capfd, cluster, "cluster", *arguments)

        _check_completion(cluster)
        moved = done("move-primary", "a", "a2")
        assert moved.code == 0 and "node a2 is primary of group 'a'" in moved.err
        assert asyncio.run(cluster.primary_of("a")) == "a2"
        assert done("drain", "a2").code == 0 and asyncio.run(cluster.primary_of("a")) != "a2"
        assert "in sync, drained" in done("status").out
        assert done("drain", "a9").code == 1
        nothing = done("drain", "cm1")
        assert nothing.code == 1 and "holds no copy of any replica group" in nothing.err
        assert "here, drained" not in done("status").out
        removed = done("remove-copy", "a", "a2")
        assert removed.code == 0 and "2 of 2 copies in sync" in removed.err
        again = done("remove-copy", "a", "a2")
        assert again.code == 1 and "node 'a2' holds no copy of replica group 'a'" in again.err
        _until_forgotten(capfd, cluster, tmp_path / "cluster" / "a2" / "replica-a")
        added = done("add-copy", "a", "a2")
        assert added.code == 0 and "3 of 3 copies in sync" in added.err
        assert done("add-copy", "a", "a2").code == 1


def _until_forgotten(capfd: pytest.CaptureFixture[str], cluster: Cluster, data: Path) -> None:
    """The node has nothing of the copy that it does not hold any more, and does not tell of it."""
    deadline = time.monotonic() + WAIT_S
    while data.exists() or '"a"' in _held(capfd, cluster):
        assert time.monotonic() < deadline, (list(data.iterdir()), _held(capfd, cluster))
        time.sleep(0.1)
    assert not list(data.parent.glob("replica-*"))


def _held(capfd: pytest.CaptureFixture[str], cluster: Cluster) -> str:
    return command(capfd, cluster, "admin", "replication.status", "--node", "a2", "--json").out


def test_the_longest_messages_go_through_the_smallest_journal(tmp_path: Path) -> None:
    """Something that nobody could write would stop one primary after the other."""
    bodies = [bytes([number]) * 4_190_000 for number in range(4)]  # two of them fill the longest frame

    async def run(cluster: Cluster) -> None:
        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await asyncio.gather(*(session.send("long", body) for body in bodies))
            received = [await session.receive("long") for _ in bodies]
            assert [message.body for message in received if message is not None] == bodies

    with running_cluster(tmp_path, client_managers=1, copies=1) as cluster:
        asyncio.run(asyncio.wait_for(run(cluster), 60))


def test_a_node_holds_a_copy_that_its_configuration_does_not_name(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also after it was killed, when that copy is all there is."""
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=1) as cluster:
        name = asyncio.run(_names(cluster))["a"]
        assert command(capfd, cluster, "send", name, "kept").code == 0
        added = command(capfd, cluster, "cluster", "add-copy", "a", "b1", "--timeout", "20")
        assert added.code == 0 and "2 of 2 copies in sync" in added.err
        assert command(capfd, cluster, "cluster", "move-primary", "a", "b1").code == 0
        cluster.kill("a1")
        cluster.kill("b1")
        cluster.start("b1")
        received = command(capfd, cluster, "receive", name, "--timeout", "20", "--count", "1")
        assert (received.code, received.out) == (0, "kept\n"), received.err
