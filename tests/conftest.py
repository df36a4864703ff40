"""What every test may rely on, however the run itself was started."""
import gc
import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# How long an example takes says something of the machine, which may be busy, and nothing of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts what it puts into the background with Ctrl-C ignored, and every process started from there inherits
# that: a test that interrupts a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

_NEW_OBJECTS = 20_000  # made and kept since it was last looked for garbage


def pytest_collection_finish() -> None:
    """Thousands of tests and all of the source are there to stay: who looks for garbage, as many tests do that want
    to see none, need not look at them every time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: some tests wait most of the time, for time-outs and for processes."""
    return len(os.sched_getaffinity(0)) + 1


class SparkTogether(LoadScopeScheduling):  # type: ignore[misc]
    """With `--dist loadscope`: Spark's tests share a session and a broker, which take long to start, so one worker has
    all of them, from the beginning; every other test goes to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return SparkTogether(config, log) if config.getvalue("dist") == "loadscope" else None
