"""Goal: a rollback or recovery can be asked for at any time, also when there is nothing to give back, or the last one
was given up; what was received comes again.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio
from collections.abc import Awaitable, Callable

import pytest

import angarium
from tests.unit.client.client_fake_server import serving
from tests.unit.client.client_running import Runner

Scenario = Callable[[angarium.Session], Awaitable[None]]


@pytest.fixture(params=["transacted", "client"])
def in_session(request: pytest.FixtureRequest, run: Runner) -> Callable[[Scenario], None]:
    """Runs a scenario in a session that has not yet reached the broker, where three messages lie in `orders`."""

    def run_in_session(scenario: Scenario) -> None:
        async def main() -> None:
            async with serving() as server, angarium.connect(server.address) as connection:
                async with connection.session() as session:
                    await session.send_many("orders", [b"0", b"1", b"2"])
                if request.param == "transacted":
                    session = connection.session(transacted=True)
                else:
                    session = connection.session(acknowledge="client")
                async with session:
                    await scenario(session)
                assert server.broker.violations == []

        run(main())

    return run_in_session


def give_back(session: angarium.Session) -> Awaitable[None]:
    return session.rollback() if session.is_transacted else session.recover()


async def received(consumer: angarium.Consumer) -> list[tuple[bytes, int]]:
    messages = [await anext(consumer) for _ in range(3)]
    return [(message.body, message.delivery_count) for message in messages]


# Once it was a TypeError, and so was an error of the application in a transaction that had just begun.
def test_when_nothing_has_reached_the_broker_yet(in_session: Callable[[Scenario], None]) -> None:
    async def scenario(session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await give_back(session)
        assert await received(consumer) == [(b"0", 1), (b"1", 1), (b"2", 1)]

    in_session(scenario)


def test_while_a_consumer_closes(in_session: Callable[[Scenario], None]) -> None:
    async def scenario(session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await consumer.opened()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await give_back(session)
        await closing
        assert [body for body, _ in await received(session.consume("orders"))] == [b"0", b"1", b"2"]

    in_session(scenario)


def test_after_it_was_given_up(in_session: Callable[[Scenario], None]) -> None:
    async def scenario(session: angarium.Session) -> None:
        consumer = session.consume("orders")
        assert await received(consumer) == [(b"0", 1), (b"1", 1), (b"2", 1)]
        given_up = asyncio.ensure_future(give_back(session))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        await give_back(session)
        assert await received(consumer) == [(b"0", 2), (b"1", 2), (b"2", 2)]

    in_session(scenario)


def test_an_error_at_the_beginning_of_a_transaction_is_the_applications_own(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session(transacted=True) as session,
        ):
            with pytest.raises(ValueError, match="mine"):
                async with session.transaction():
                    session.consume("orders")
                    raise ValueError("mine")

    run(main())
