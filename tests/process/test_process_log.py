"""Goal: a log is read by position from a real broker, with retention that outlives kill -9."""
import asyncio
from pathlib import Path

import pytest

import angarium
from angarium import blocking
from angarium.client.log import LogGone
from angarium.core.errors import Rejected
from tests.process.process_broker import running

COUNT = 5_000


def test_what_was_consumed_is_read_again_after_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        made = broker.run("create", "q", "--retain", "1h", "--retain-bytes", "100000000")
        assert made.returncode == 0, made.stderr
        with blocking.connect(broker.address) as connection, connection.session() as session:
            session.send_many("q", (b"%d" % number for number in range(COUNT)))
            with session.consume("q") as consumer:
                for _ in range(COUNT):
                    message = consumer.receive(timeout_s=10)
                    assert message is not None
                    message.settle()
            session.sync()  # a settlement that was only on its way dies with the broker
            broker.kill()
            broker.start()
            log = connection.log("q")
            described = log.describe()
            (lane,) = described.lanes
            assert (lane.first, lane.end, described.retains) == (0, COUNT, True)
            bodies = [body for piece in log.read(identity=described.identity) for body in piece.batch.bodies()]
            assert bodies == [b"%d" % number for number in range(COUNT)]
            assert f"{COUNT:,} retained" in broker.run("ls").stdout
            assert connection.request("destination.purge", {"name": "q"}).result == {"purged": 0}
            with pytest.raises(LogGone, match=f"positions 0 to {COUNT - 1} are gone"):
                next(log.pages(0, COUNT))


def test_two_readers_and_live_traffic_do_not_disturb_each_other(tmp_path: Path) -> None:
    async def scenario(address: str) -> None:
        async with angarium.connect(address) as connection, connection.session() as session:
            for number in range(COUNT):
                session.send("q", b"%d" % number, properties={"n": number})
            await session.flush()
            log = connection.log("q")
            (lane,) = (await log.describe()).lanes

            async def all_of(selector: str) -> list[int]:
                pieces = log.read(0, lane.end, selector=selector)
                return [int(body) async for piece in pieces for body in piece.batch.bodies()]

            async def consumed() -> list[object]:
                async with session.consume("q", prefetch=COUNT) as consumer:
                    return [await consumer.receive() for _ in range(COUNT)]  # held, so that nothing is freed

            whole, odd, taken = await asyncio.gather(all_of(""), all_of("n >= 100 AND n < 200"), consumed())
            assert whole == list(range(COUNT)) and odd == list(range(100, 200)) and len(taken) == COUNT
            assert (await log.seek(0)) == [0]
            with pytest.raises(Rejected) as refused:
                await connection.log("nowhere").describe()
            assert refused.value.code == "unknown-destination"
            assert [described.name for described in await connection.logs("q")] == ["q"]

    with running(tmp_path) as broker:
        asyncio.run(scenario(broker.address))
