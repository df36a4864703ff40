"""Goal: what no frame can carry, or means nothing, is refused where it is said, or carried as what it is; it never ends
the connection.
Method: the fake broker behind a real server, and arguments of types that are nearly the right ones. After each of them
the connection has to be of use."""
import enum
from collections.abc import Callable
from typing import Any

import pytest

import angarium
from tests.unit.client.client_fake_server import serving
from tests.unit.client.client_running import Runner


class Text(str):  # as numpy's strings are
    __slots__ = ()


class Name(enum.StrEnum):
    QUEUE = "numbers"


class Whole:
    """As numpy's whole numbers are."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


TOPIC = angarium.Topic("news")
Call = Callable[[angarium.Session, Any], object]


@pytest.mark.parametrize("name", [Text("numbers"), Name.QUEUE, angarium.Queue(Text("numbers"))])
def test_a_text_of_another_class_names_a_destination(run: Runner, name: str | angarium.Queue) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address, name=Text("me")) as connection:
            async with connection.session() as session:
                await session.send(name, b"1", type=Text("t"), correlation_id=Text("c"), reply_to=name)
                message = await session.receive(name, 5)
                assert message is not None and message.destination == "numbers"
                assert (message.type, message.correlation_id) == ("t", "c")
                message.settle()
            async with connection.session(transacted=True) as session:
                session.send(name, b"2")
                await session.commit()
                assert list(server.broker.logs) == ["numbers"]

    run(main())


def test_a_text_of_another_class_names_a_subscription_and_selects(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            async with session.consume(TOPIC, durable=Text("ledger"), selector=Text("n = 1")):
                assert list(server.broker.log("news").subscriptions) == ["ledger"]
            consumer = session.consume_matching(Text("n*"), durable=Text("ledger"), selector=Text(""))
            await session.send("numbers", b"1")
            await consumer.close()

    run(main())


@pytest.mark.parametrize(
    ("call", "value", "said"),
    [
        (lambda session, value: session.consume("orders", prefetch=value), 1.5, "prefetch is a whole number, not 1.5"),
        (lambda session, value: session.consume("orders", prefetch=value), "5", "prefetch is a whole number, not '5'"),
        (lambda session, value: session.consume_matching("o*", prefetch=value), 2.0, "prefetch is a whole number"),
        (lambda session, value: session.consume("orders").set_prefetch(value), 1.5, "prefetch is a whole number"),
        (lambda session, value: session.consume_matching("o*").set_prefetch(value), 1.5, "prefetch is a whole number"),
        (lambda session, value: session.consume("orders", selector=value), None, "selector is a str, not NoneType"),
        (lambda session, value: session.consume(TOPIC, no_local=value), 1, "no_local is True or False, not 1"),
        (lambda session, value: session.consume_matching("o*", no_local=value), None, "no_local is True or False"),
        (lambda session, value: session.consume("orders", exclusive=value), "no", "exclusive is True or False"),
        (lambda session, value: session.consume(TOPIC, durable=value), 5, "a subscription's name is a str, not int"),
        (lambda session, value: session.send(angarium.Queue(value), b""), 5, "a destination's name is a str, not int"),
    ],
)
def test_what_the_broker_would_end_the_connection_for_is_refused(
    run: Runner, call: Call, value: object, said: str
) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            with pytest.raises(TypeError, match=said):
                call(session, value)
            await session.send("orders", b"of use")
            assert len(server.links) == 1

    run(main())


@pytest.mark.parametrize(("command", "arguments"), [(5, {}), ("destination.list", ["orders"])])
def test_a_request_has_a_name_and_named_arguments(run: Runner, command: Any, arguments: Any) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            with pytest.raises(TypeError, match=r"a command is a str|arguments are a dict"):
                await connection.request(command, arguments)
            await session.send("orders", b"of use")

    run(main())


def test_whatever_counts_as_a_whole_number_is_a_prefetch(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            consumer = session.consume("orders", prefetch=Whole(3))  # type: ignore[arg-type]
            await consumer.opened()
            consumer.set_prefetch(Whole(5))  # type: ignore[arg-type]
            await session.sync()
            assert consumer.prefetch == 5

    run(main())


# Once an empty name, as of a variable that is not set, made a subscription that was not durable, without a word.
@pytest.mark.parametrize(
    "consume",
    [
        lambda session: session.consume(TOPIC, durable=""),
        lambda session: session.consume(TOPIC, shared=""),
        lambda session: session.consume_matching("n*", durable=""),
    ],
)
def test_a_subscription_with_an_empty_name_is_refused(
    run: Runner, consume: Callable[[angarium.Session], object]
) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            with pytest.raises(angarium.Rejected, match="subscription name ''") as refused:
                consume(session)
            assert refused.value.code == "bad-name"

    run(main())
