"""Goal: one consumer gets all that is published to topics that match its pattern, also to those that are created while
it runs, while the link is cut and after the broker was killed; a hostile expression disturbs nobody.
Method: real brokers, a proxy that cuts, the client as applications use it."""
import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

import angarium
from angarium import blocking
from tests.process.process_broker import COMMAND, WAIT_S, environment, running, until, until_async
from tests.process.process_delay import Delay
from tests.process.process_proxy import Proxy
from tests.process.process_traffic import EAGER

HOSTILE = "(?:" + "|".join(f"a{{{n}}}" for n in range(1, 43)) + ")*b"  # 3 ms for a long name


async def take(consumer: angarium.PatternConsumer, count: int) -> list[tuple[str, bytes]]:
    taken: list[tuple[str, bytes]] = []
    while len(taken) < count:
        message = await consumer.receive(WAIT_S)
        assert message is not None, taken
        taken.append((message.destination, message.body))
        message.settle()
    return taken


def test_new_topics_are_merged_and_nothing_is_missed_through_a_cut_and_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path, {"destination.resume_grace_s": WAIT_S}) as broker:
            proxy = Proxy(broker.port, seed=1, bytes_max=1 << 30)
            proxy.heal()
            async with (
                proxy,
                angarium.connect(proxy.address, reconnect=EAGER) as consuming,
                angarium.connect(broker.address, reconnect=EAGER) as sending,
                consuming.session() as session,
                sending.session() as sender,
            ):
                await sender.send(angarium.Topic("orders.old"), b"before")
                async with session.consume_matching("orders.*", prefetch=10) as consumer:
                    await consumer.opened()
                    assert consumer.destinations == ["orders.old"]
                    await sender.send(angarium.Topic("other.new"), b"not for us")
                    await sender.send(angarium.Topic("orders.new"), b"first")
                    delay = Delay(broker.pid)
                    assert await take(consumer, 1) == [("orders.new", b"first")]
                    assert delay.seconds() < 1.0
                    await sender.send(angarium.Topic("orders.old"), b"second")
                    assert await take(consumer, 1) == [("orders.old", b"second")]
                    proxy.shut()
                    await sender.send(angarium.Topic("orders.cut"), b"while it was cut off")
                    proxy.reopen()
                    assert await take(consumer, 1) == [("orders.cut", b"while it was cut off")]
                    await broker.restart_after_kill()
                    await sender.send(angarium.Topic("orders.restarted"), b"after a restart")
                    assert await take(consumer, 1) == [("orders.restarted", b"after a restart")]
                    await sending.request("destination.remove", {"name": "orders.cut"})
                    await until_async(lambda: len(consumer.destinations) == 3, "the removed one has left")
                    await sender.send(angarium.Topic("orders.new"), b"still here")
                    assert await take(consumer, 1) == [("orders.new", b"still here")]

    asyncio.run(main())


def test_turns_are_fair_and_durable_names_hold_for_each_topic(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path) as broker:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                topics = [angarium.Topic(f"t.{number}") for number in range(3)]
                for topic in topics:
                    await connection.request("destination.create", {"name": topic.name, "kind": "topic"})
                async with session.consume_matching("t.*", durable="d") as consumer:
                    await consumer.opened()
                for topic in topics:
                    await session.send_many(topic, [b"%d" % number for number in range(50)])
                async with session.consume_matching("t.*", durable="d") as consumer:
                    await consumer.opened()
                    taken = await take(consumer, 150)
                    assert {name for name, _ in taken[:30]} == {topic.name for topic in topics}
                    await session.sync()
                with pytest.raises(angarium.Rejected) as refused:
                    await session.consume_matching(angarium.Pattern("(", syntax="regex")).receive(WAIT_S)
                assert refused.value.code == "bad-pattern"

    asyncio.run(main())


def test_a_paused_pattern_gets_nothing_until_it_goes_on(tmp_path: Path) -> None:
    async def scenario(address: str) -> None:
        async with angarium.connect(address) as connection, connection.session() as session:
            await session.send(angarium.Topic("news.one"), b"before")
            consumer = session.consume_matching("news.*")
            await consumer.opened()
            with pytest.raises(angarium.LocalProtocolError):
                consumer.set_prefetch(-1)
            consumer.set_prefetch(0)
            for name in ("news.one", "news.two"):  # the second is new
                await session.send(angarium.Topic(name), b"x")
            assert await consumer.receive(0.3) is None
            consumer.set_prefetch(10)
            found = [await consumer.receive(WAIT_S) for _ in range(2)]
            assert {message.destination for message in found if message is not None} == {"news.one", "news.two"}

    with running(tmp_path) as broker:
        asyncio.run(scenario(broker.address))


def test_what_matches_is_browsed_by_name(tmp_path: Path) -> None:
    """Many more names than one page of the list has, with and without messages; one is gone meanwhile."""
    async def main() -> None:
        with running(tmp_path) as broker:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                for number in range(520):
                    await connection.request("destination.create", {"name": f"empty.{number}", "kind": "queue"})
                names = ["jobs.a", "jobs.b", "jobs.b.c", "other", "jobs.z"]
                for name in names:
                    session.send(name, f"{name} 1", priority=9, properties={"n": 1})
                    session.send(name, f"{name} 0", properties={"n": 0})
                session.send(angarium.Topic("jobs.topic"), b"not kept")
                await session.flush()

                async def shown(*arguments: Any) -> list[str]:
                    return [message.text async for message in session.browse_matching(*arguments)]

                assert await shown("jobs.*") == [f"jobs.{name} {n}" for name in "abz" for n in (1, 0)]
                assert await shown("**.b.**", "n = 0") == ["jobs.b 0", "jobs.b.c 0"]
                assert await shown(angarium.Pattern(r"o.*|jobs\.z", syntax="regex", kind="any"), "n = 1") == [
                    "jobs.z 1", "other 1",
                ]  # fmt: skip
                assert await shown("nothing.*") == []
                for bad in ("a..b", angarium.Pattern("(", syntax="regex"), angarium.Pattern("x", syntax="sql")):  # type: ignore[arg-type]
                    with pytest.raises(angarium.Rejected) as refused:
                        session.browse_matching(bad)
                    assert refused.value.code == "bad-pattern"
                found: list[str] = []
                async for message in session.browse_matching("jobs.*", "n = 1"):
                    found.append(message.text)
                    if message.destination == "jobs.a":
                        await connection.request("destination.remove", {"name": "jobs.b"})
                assert found == ["jobs.a 1", "jobs.z 1"]
            with blocking.connect(broker.address) as other, other.session() as looking:
                texts = [message.text for message in looking.browse_matching("jobs.?", "n = 0")]
                assert texts == ["jobs.a 0", "jobs.z 0"]

    asyncio.run(main())


def test_every_way_to_acknowledge_works_with_patterns(tmp_path: Path) -> None:
    names = [f"t.{number}" for number in range(3)]

    async def waiting(connection: angarium.Connection) -> int:
        described = [(await connection.request("destination.describe", {"name": name})).result for name in names]
        return sum(each["messages"] for each in described)

    async def taken(session: angarium.Session, count: int) -> list[str]:
        consumer = session.consume_matching("t.*", durable="d")
        await consumer.opened()
        messages = [await consumer.receive(WAIT_S) for _ in range(count)]
        return [message.destination for message in messages if message is not None]

    async def main() -> None:
        with running(tmp_path) as broker:
            async with angarium.connect(broker.address) as connection:
                async with connection.session() as sender:
                    for name in names:
                        await sender.consume(angarium.Topic(name), durable="d").opened()
                async with connection.session() as sender:
                    for name in names:
                        await sender.send_many(angarium.Topic(name), [b"%d" % number for number in range(5)])
                assert await waiting(connection) == 15
                async with connection.session(acknowledge="auto") as session:
                    assert set(await taken(session, 3)) == set(names)
                assert await waiting(connection) == 12
                async with connection.session(acknowledge="client") as session:
                    await taken(session, 3)
                assert await waiting(connection) == 12, "it was not acknowledged"
                async with connection.session(acknowledge="client") as session:
                    await taken(session, 3)
                    session.acknowledge()
                    await session.sync()
                assert await waiting(connection) == 9
                async with connection.session(transacted=True) as session:
                    await taken(session, 3)
                    await session.rollback()
                assert await waiting(connection) == 9
                async with connection.session(transacted=True) as session:
                    await taken(session, 9)
                    await session.commit()
                assert await waiting(connection) == 0
                async with connection.session() as session:
                    await session.unsubscribe(angarium.Topic(names[0]), "d")
                    with pytest.raises(angarium.Rejected) as refused:
                        await session.unsubscribe(angarium.Topic(names[0]), "d")
                    assert refused.value.code == "unknown-subscription"

    asyncio.run(main())


def test_a_hostile_expression_disturbs_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path) as broker:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                for number in range(200):
                    name = f"{'a' * 245}{number}"
                    await connection.request("destination.create", {"name": name, "kind": "topic"})
                hostile = [
                    session.consume_matching(angarium.Pattern(HOSTILE + f"{number}", syntax="regex"))
                    for number in range(20)
                ]
                slowest = 0.0
                for _ in range(50):
                    delay = Delay(broker.pid)
                    await session.send("jobs", b"x")
                    slowest = max(slowest, delay.seconds())
                assert not any(consumer.is_merged for consumer in hostile), "they are all at work the whole time"
                assert slowest < 1.0
                for consumer in hostile:
                    await consumer.close()

    asyncio.run(main())


def test_the_blocking_face_and_the_command_line(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with angarium.blocking.connect(broker.address) as connection, connection.session() as session:
            with session.consume_matching("orders.*") as consumer:
                session.send(angarium.Topic("orders.eu"), b"one").result(WAIT_S)
                message = consumer.receive(WAIT_S)
                assert message is not None and message.destination == "orders.eu"
                message.settle()
            session.send("orders.queue", b"two").result(WAIT_S)
            session.send("jobs", b"three").result(WAIT_S)

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [*COMMAND, *arguments, "--address", broker.address],
                capture_output=True, text=True, timeout=WAIT_S, env=environment(),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        listed = run("ls", "orders.*")
        assert "orders.eu" in listed and "orders.queue" in listed and "jobs" not in listed
        assert "jobs" in run("ls", "j.*s", "--regex")
        browsed = run("browse", "*.queue")
        assert "two" in browsed and "three" not in browsed


def test_a_pattern_without_asyncio_in_other_modes(tmp_path: Path) -> None:
    """Individually is shown above. What was fetched and not handed out counts as neither taken nor delivered."""
    with running(tmp_path) as broker, angarium.blocking.connect(broker.address) as connection:
        with connection.session() as sender:
            for name in ("t.a", "t.b"):
                connection.request("destination.create", {"name": name, "kind": "topic"}, WAIT_S)
            with connection.session() as making, making.consume_matching("t.*", durable="d") as consumer:
                consumer.opened(WAIT_S)
            for number in range(6):
                sender.send(angarium.Topic(("t.a", "t.b")[number % 2]), b"%d" % number).result(WAIT_S)
        with connection.session(acknowledge="auto") as session:
            consumer = session.consume_matching("t.*", durable="d")
            seen = [next(consumer).body for _ in range(2)]
            consumer.close()
        with pytest.raises(ZeroDivisionError), connection.session(acknowledge="auto") as session:
            failed = next(session.consume_matching("t.*", durable="d"))
            _ = 1 / 0
        with connection.session(transacted=True) as session:
            consumer = session.consume_matching("t.*", durable="d")
            first = [next(consumer) for _ in range(4)]
            assert {message.body for message in first} | set(seen) == {b"%d" % number for number in range(6)}
            assert [message.body for message in first if message.redelivered] == [failed.body]
            session.rollback(WAIT_S)
            assert {next(consumer).body for _ in range(4)} == {message.body for message in first}
            session.commit(WAIT_S)
            assert consumer.receive(0.2) is None
            assert (consumer.dropped_count, connection.loss, connection.on_change) == (0, "", None)


def test_tail_follows_topics_that_are_created_later(tmp_path: Path) -> None:
    with running(tmp_path) as broker, angarium.blocking.connect(broker.address) as connection:
        connection.request("destination.create", {"name": "orders.there", "kind": "topic"})
        tail = subprocess.Popen(
            [*COMMAND, "topic", "tail", "orders.**", "--count", "2", "--address", broker.address],
            stdout=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        try:
            with connection.session() as session:
                there = {"name": "orders.there"}
                until(lambda: connection.request("destination.describe", there).result["consumers"] == 1, "it watches")
                session.send(angarium.Topic("orders.eu.west"), b"one").result(WAIT_S)
                session.send(angarium.Topic("orders"), b"two").result(WAIT_S)
            output, _ = tail.communicate(timeout=WAIT_S)
            assert sorted(output.split()) == ["one", "two"] and tail.returncode == 0
        finally:
            tail.kill()
