"""Goal: a broker stops cleanly under traffic, and the next one takes up where it left off.
Method: SIGTERM and SIGINT while everything flows; a second broker on what belongs to the first."""
import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import COMMAND, WAIT_S, environment, free_port, running
from tests.process.process_traffic import PATIENT, Traffic
from tests.process.process_wire import stalled_consumer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_traffic_survives_clean_stops(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, PATIENT) as broker:

        async def faults(traffic: Traffic) -> None:
            for _ in range(2):
                await traffic.more_confirmed(traffic.chance.randrange(500, 5_000))
                assert await asyncio.to_thread(broker.stop, number) == 0
                await asyncio.to_thread(broker.start)
                traffic.note_fault()
            await traffic.more_confirmed(100)

        async def run() -> None:
            await Traffic(broker.address, seed=int(number)).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
        assert "ERROR" not in broker.log()


def test_a_stalled_client_does_not_keep_the_broker_from_stopping(tmp_path: Path) -> None:
    async def send() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("stalled", [bytes(1_000)] * 20_000)

    with running(tmp_path) as broker, stalled_consumer(broker.port, "stalled"):
        asyncio.run(send())
        assert broker.stop() == 0


def test_a_second_broker_is_refused_what_belongs_to_the_first(tmp_path: Path) -> None:
    def refused(data: Path, port: int) -> str:
        done = subprocess.run(
            [*COMMAND, "up", "--data", str(data), "--listen", f"127.0.0.1:{port}"],
            capture_output=True, text=True, timeout=WAIT_S, env=environment(),
        )  # fmt: skip
        assert done.returncode != 0
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("angarium: "), done.stderr
        return done.stderr

    with running(tmp_path) as broker:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(100)
            text = await asyncio.to_thread(refused, broker.data, free_port())
            assert str(broker.data) in text and str(broker.pid) in text
            text = await asyncio.to_thread(refused, tmp_path / "other", broker.port)
            assert str(broker.port) in text
            await traffic.more_confirmed(100)

        async def run() -> None:
            await Traffic(broker.address).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0
