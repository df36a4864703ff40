"""Goal: a task that has nothing to write asks nothing of a broker: after a shuffle most tasks are of that kind."""
import pyarrow as pa
import pytest

from angarium.client import blocking
from angarium.spark.sink import Staged, end, write_rows
from angarium.spark.sink_options import SinkOptions


def test_a_task_without_rows_does_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(blocking, "connect", connect)
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=["body"])
    options = SinkOptions(("angarium://127.0.0.1:1",), "q")
    for rows in ([], [empty], [empty, empty]):
        staged = write_rows(options, "job", 0, iter(rows))
        assert staged == Staged("job", 0, [])
        end(options, [staged, None], commit=True)
    one = pa.RecordBatch.from_arrays([pa.array([b"x"], pa.binary())], names=["body"])
    with pytest.raises(AssertionError, match="connected"):
        write_rows(options, "job", 0, iter([empty, one]))
