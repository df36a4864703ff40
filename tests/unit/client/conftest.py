"""Every scenario runs on stock asyncio and on uvloop."""
import asyncio
from functools import partial

import pytest
import uvloop

from tests.unit.client.client_running import Runner, run_on


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    return partial(run_on, request.param)
