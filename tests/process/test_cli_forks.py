"""Goal: what tests start by forking (cli_forks.py) is as alive and as dead as what they start otherwise, and does not
outlive them."""
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli_forks import Forked
from tests.process.process_broker import environment, running, until

_HOLD = """
import sys
from pathlib import Path
from tests.process.process_broker import running

with running(Path(sys.argv[1])) as broker:
    print(broker.pid, flush=True)
    sys.stdin.read()
"""


def test_how_it_ended_is_told(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        assert isinstance(broker.process, Forked)
        assert broker.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            broker.process.wait(0.01)
        assert broker.stop() == 0
        assert broker.process.poll() == 0
        broker.start()
        broker.kill()
        assert broker.process.returncode == -signal.SIGKILL
        broker.process.kill()  # it is dead, and nobody else is hit


def test_nothing_outlives_tests_that_were_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    root = Path(__file__).parents[2]
    tests = subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert tests.stdin is not None and tests.stdout is not None
    with tests.stdin, tests.stdout:
        broker = int(tests.stdout.readline())
        assert Path(f"/proc/{broker}").exists()
        tests.kill()
        tests.wait()
    until(lambda: not Path(f"/proc/{broker}").exists(), "the broker has ended")
