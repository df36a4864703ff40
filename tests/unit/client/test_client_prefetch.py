"""Goal: the prefetch is what the application says, in every mode and until it says otherwise; 0 pauses a consumer.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
from collections.abc import Awaitable, Callable

import pytest

import angarium
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until

MODES = ["individual", "auto", "duplicates-ok", "client", "transacted"]
Scenario = Callable[[FakeServer, angarium.Session], Awaitable[None]]


@pytest.fixture(params=MODES)
def in_session(request: pytest.FixtureRequest, run: Runner) -> Callable[[Scenario], None]:
    """Runs a scenario in a session of each mode, where forty messages lie in `orders`."""

    def run_in_session(scenario: Scenario) -> None:
        async def main() -> None:
            async with serving() as server, angarium.connect(server.address) as connection:
                async with connection.session() as session:
                    await session.send_many("orders", [b"%d" % n for n in range(40)])
                if request.param == "transacted":
                    session = connection.session(transacted=True)
                else:
                    session = connection.session(acknowledge=request.param)
                async with session:
                    await scenario(server, session)

        run(main())

    return run_in_session


async def done_with(session: angarium.Session, message: angarium.Message) -> None:
    """And all before it."""
    if session.is_transacted:
        await session.commit()
    elif message.delivery.consumer.taken is None:
        message.settle()
    else:
        session.acknowledge()


def held(server: FakeServer) -> int:
    return len(server.broker.log("orders").subscriptions[""].held)


# Once what was acknowledged or committed set it back to what the consumer was opened with.
def test_it_holds_until_it_is_changed(in_session: Callable[[Scenario], None]) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        message = await anext(consumer)
        consumer.set_prefetch(10)
        await until(lambda: held(server) == 10)
        await done_with(session, message)
        await done_with(session, await anext(consumer))
        await until(lambda: held(server) == 10)
        assert consumer.prefetch == 10

    in_session(scenario)


# Once a consumer whose window grows with what was taken went on as soon as it was asked.
def test_a_paused_consumer_gets_nothing_until_it_goes_on(in_session: Callable[[Scenario], None]) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        first = [await anext(consumer)]
        consumer.set_prefetch(0)
        while (message := await consumer.receive(0.05)) is not None:
            first.append(message)
        assert len(first) <= 4, "what was on its way"
        await done_with(session, first[-1])
        if len(first) > 1 and not session.is_transacted:
            for message in first[:-1]:
                if message.delivery.consumer.taken is None:
                    message.settle()
        assert await consumer.receive(0.05) is None
        consumer.set_prefetch(3)
        following = await consumer.receive(5)
        assert following is not None and following.body == b"%d" % len(first)

    in_session(scenario)
