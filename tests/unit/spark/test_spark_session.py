"""Goal: whatever PySpark starts is known from its first moment, so that an interrupt leaves nothing behind.
Method: a signal comes while the process is being made."""
import signal
import subprocess
import threading
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark import java_gateway

from angarium.spark.pipelines.session import _noted


class Made:
    """In the place of a process."""

    def __init__(self, number: int | None) -> None:
        if number is not None:
            signal.raise_signal(number)


def _start(number: int | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(subprocess, "Popen", Made)
    return vars(java_gateway)["Popen"](number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_is_known_before_an_interrupt_is_heard(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, ended)
    try:
        with _noted() as processes:
            with pytest.raises(KeyboardInterrupt):
                _start(number, monkeypatch)
            assert len(processes) == 1
            assert signal.getsignal(number) is ended
    finally:
        signal.signal(number, before)


def test_in_another_thread_there_is_nothing_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    with _noted() as processes:
        thread = threading.Thread(target=_start, args=(None, monkeypatch))
        thread.start()
        thread.join()
        assert len(processes) == 1
