"""Goal: connections that are cut at any byte lose nothing and double nothing.
Method: the same traffic as for kill -9, through a proxy that cuts each connection after a random number of bytes in
either direction. After a hundred cuts the network heals, and all must arrive. Replay one: pytest -k 'anywhere[2]'."""
import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.process.process_broker import running, until_async
from tests.process.process_proxy import Proxy
from tests.process.process_traffic import PATIENT, Traffic

_CUTS = 100
_BYTES_MAX = 400_000


@pytest.mark.parametrize("seed", range(3))
def test_traffic_survives_connections_cut_anywhere(tmp_path: Path, seed: int) -> None:
    with running(tmp_path, PATIENT) as broker:

        async def run() -> None:
            async with Proxy(broker.port, seed=seed, bytes_max=_BYTES_MAX) as proxy:

                async def faults(traffic: Traffic) -> None:
                    await until_async(lambda: proxy.cuts >= _CUTS, lambda: f"{proxy.cuts} of {_CUTS} cuts")
                    proxy.heal()
                    traffic.note_fault()

                await Traffic(proxy.address, seed=seed).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()


def _has_cut(proxy: Proxy, count: int) -> bool:
    return proxy.cuts >= count


def test_traffic_survives_cuts_and_kills_together(tmp_path: Path) -> None:
    with running(tmp_path, PATIENT) as broker:

        async def run() -> None:
            async with Proxy(broker.port, seed=99, bytes_max=_BYTES_MAX) as proxy:

                async def faults(traffic: Traffic) -> None:
                    for kill in range(1, 4):
                        await until_async(partial(_has_cut, proxy, 25 * kill), f"{25 * kill} cuts")
                        await broker.restart_after_kill()
                    proxy.heal()
                    traffic.note_fault()

                await Traffic(proxy.address, seed=99).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0
