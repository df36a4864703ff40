"""Goal: a broker that is alone is administered like a cluster of one: any command, settings that are changed while it
runs and kept, events in its file, in `angarium log` and on `_LOG`.
Method: a real broker; the command line as people use it, and the public client."""
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import angarium
from angarium.admin.commands import Commands
from tests.process.process_broker import WAIT_S, Broker, running, until

GRACE = "destination.resume_grace_s"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("administration"), {"session.links_max": 777}) as broker:
        yield broker


def said(broker: Broker, *arguments: str) -> Any:
    done = broker.run(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def events(broker: Broker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (broker.data / "events.jsonl").read_text().splitlines()]


# -- commands ------------------------------------------------------------------------------------------------


def test_commands_are_listed_and_run(broker: Broker) -> None:
    listed = broker.run("admin", "--list")
    assert listed.returncode == 0
    for name in ("admin.run", "config.set", "destination.list", "dmq.redrive", "events.recent", "node.status"):
        assert name in listed.stdout
    assert "how many may wait" in broker.run("admin", "--list", "destination.create").stdout
    composite = said(broker, "admin", "node.status", "--json")
    assert (composite["expected"], composite["answered"], composite["missing"]) == (1, 1, [])
    assert composite["replies"][0]["node"] == "test" and composite["replies"][0]["result"]["pid"] == broker.pid
    assert "pid  " in broker.run("admin", "node.status", "--node", "test").stdout


def test_a_message_manager_is_asked_in_the_same_way(broker: Broker) -> None:
    said(broker, "admin", "destination.create", "name=by-admin", "messages_max=5", "buries=false", "--json")
    (reply,) = said(broker, "admin", "destination.describe", "name=by-admin", "--json")["replies"]
    assert reply["result"]["messages_max"] == 5 and reply["result"]["buries"] is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["node.stats"], "did you mean 'node.status'"),
        (["node.status", "verbose=true"], "unknown argument 'verbose'; it takes none"),
        (["destination.describe", "nmae=x"], "it takes name, group"),
        (["destination.describe"], "needs 'name'"),
        (["destination.list", "count=many"], "'count' as a whole number"),
        (["node.status", "--node", "elsewhere"], "there is no node 'elsewhere'; there are test"),
        (["destination.describe", "name=nothing"], "unknown-destination"),
        (["node.status", "x"], "KEY=VALUE"),
    ],
)
def test_mistakes_are_one_sentence_and_an_exit_code(broker: Broker, arguments: list[str], told: str) -> None:
    done = broker.run("admin", *arguments)
    assert done.returncode in (1, 2) and told in done.stderr and done.stderr.count("\n") == 1


def test_commands_may_come_as_messages(broker: Broker) -> None:
    async def ask(body: object) -> dict[str, Any]:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            reply = await session.request("_ADMIN", json.dumps(body), timeout_s=WAIT_S)
            answer: dict[str, Any] = json.loads(reply.body)
            return answer

    answer = asyncio.run(ask({"command": "node.status"}))
    assert answer["code"] == "" and answer["result"]["answered"] == 1
    assert asyncio.run(ask({"command": "nothing"}))["code"] == "unknown-command"
    assert asyncio.run(ask(["nonsense"]))["code"] == "bad-argument"


# -- configuration -------------------------------------------------------------------------------------------


def test_a_setting_is_changed_shown_taken_back_and_survives(tmp_path: Path) -> None:
    with running(tmp_path, {"session.links_max": 777}) as broker:
        changed = broker.run("config", "set", GRACE, "7.5")
        assert changed.returncode == 0 and changed.stdout.split() == ["NODE", "VERSION", GRACE, "test", "1", "7.5"]
        broker.kill()
        broker.start()
        row = broker.run("config", "get", GRACE).stdout.splitlines()[1]
        assert row.split(maxsplit=2) == [GRACE, "7.5", "changed online, version 1  test"]
        links = broker.run("config", "get", "session.links_max").stdout.splitlines()[1]
        assert links.split() == ["session.links_max", "777", "environment", "ANGARIUM_SESSION__LINKS_MAX", "test"]
        shown = broker.run("config", "show", "--data", str(broker.data)).stdout
        assert f"{'resume_grace_s = 7.5':<40}  # changed online, version 1" in shown.splitlines()
        assert broker.run("config", "unset", GRACE).returncode == 0
        assert "2.0" in broker.run("config", "get", GRACE).stdout
        assert "secret" not in broker.run("config", "get", "--all").stdout.replace("cluster.secret", "")


@pytest.mark.parametrize(
    ("key", "value", "told", "code"),
    [
        (GRACE, "-1", "negative", 2),
        (GRACE, "soon", "cannot be 'soon'", 2),
        ("destination.grace", "1", "did you mean 'destination.resume_grace_s'", 2),
        ("node.data", "/elsewhere", "start it again", 1),
        ("node.log_level", "loud", "'info', 'warning' or 'error'", 2),
    ],
)
def test_what_cannot_be_set_is_refused(broker: Broker, key: str, value: str, told: str, code: int) -> None:
    done = broker.run("config", "set", key, value)
    assert done.returncode == code and told in done.stderr
    assert not (broker.data / "acquired.toml").exists() or key not in (broker.data / "acquired.toml").read_text()


def test_settings_take_effect_at_once(broker: Broker) -> None:
    async def work() -> None:
        async with angarium.connect(broker.address) as connection:
            commands = Commands(connection)
            changed = await commands.configure("session.sessions_max", 1)
            assert changed.is_whole and changed.replies[0].result["saved_version"] == changed.version
            first = connection.session()
            await first.send("orders", b"1")
            with pytest.raises(angarium.AngariumError, match="sessions_max 1"):
                async with angarium.connect(broker.address) as other:
                    for _ in range(2):
                        await other.session().send("orders", b"2")
            await commands.unconfigure("session.sessions_max")
            await first.close()

    asyncio.run(work())


def test_the_log_level_takes_effect_at_once(broker: Broker) -> None:
    def lowered() -> bool:
        """A thread writes the file: that the level was set, the last to be told, is there only a little later."""
        last = events(broker)[-1]
        return last["code"] == "configuration-changed" and "node.log_level" in last["text"]

    assert broker.run("config", "set", "node.log_level", "error").returncode == 0
    until(lowered, "the change of the level is told")
    count = len(events(broker))
    assert broker.run("config", "set", "session.links_max", "900").returncode == 0
    assert len(events(broker)) == count
    assert broker.run("config", "unset", "node.log_level").returncode == 0
    assert broker.run("config", "unset", "session.links_max").returncode == 0
    until(lambda: len(events(broker)) > count, "events are written again")


# -- events --------------------------------------------------------------------------------------------------


def test_events_are_in_the_file_in_the_log_and_on_the_topic(tmp_path: Path) -> None:
    with running(tmp_path) as broker:

        async def work() -> list[dict[str, Any]]:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                consumer = session.consume(angarium.Topic("_LOG"), selector="level = 'info' AND node = 'test'")
                await consumer.opened()
                await Commands(connection).configure(GRACE, 3)
                changed = await consumer.receive(WAIT_S)
                if changed is not None and changed.properties["code"] == "started":
                    changed = await consumer.receive(WAIT_S)  # that it started may be told only now
                assert changed is not None and changed.type == "event"
                assert changed.properties["code"] == "configuration-changed"
                with pytest.raises(angarium.Rejected, match="reserved"):
                    await session.send(angarium.Topic("_LOG"), b"forged")
                broker.process.terminate()
                stopping = await consumer.receive(WAIT_S)
                assert stopping is not None
                return [json.loads(changed.body), json.loads(stopping.body)]

        found = asyncio.run(work())
        assert [event["code"] for event in found] == ["configuration-changed", "stopping"]
        broker.process.wait(WAIT_S)
        written = [event for event in events(broker) if event["code"] != "limit-lowered"]
        assert [event["code"] for event in written] == ["started", *(event["code"] for event in found), "stopped"]
        assert written[1:3] == found


def test_the_log_command_shows_bad_input_and_filters(broker: Broker) -> None:
    async def bad_input() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()

    asyncio.run(bad_input())
    shown = broker.run("log").stdout
    assert "started: angarium://" in shown and "frame-too-long: connection from" in shown
    warnings = broker.run("log", "--level", "warning", "--json").stdout.splitlines()
    assert {json.loads(line)["level"] for line in warnings} == {"warning"}
    assert broker.run("log", "--node", "elsewhere").returncode == 1
    assert broker.run("log", "--level", "loud").returncode == 2
