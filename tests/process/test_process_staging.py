"""Goal: what a client stages is published by its commit, once, whatever happens to the broker in between."""
import asyncio
from collections import Counter
from pathlib import Path

import pytest

from angarium import blocking
from angarium.client.staging import StagedPart
from angarium.core.client.gathered import Gathered
from angarium.core.errors import Rejected, Unavailable
from tests.process.cluster_processes import running_cluster
from tests.process.process_broker import Broker, running, until
from tests.process.stage_proxy import Moment, StageProxy

BATCHES, ROWS = 20, 500


def staged(connection: blocking.Connection, batch: int, broker: Broker | None = None) -> list[StagedPart]:
    """One batch in two parts; the broker, if given, is killed between the first and the last of its rows."""
    parts: list[StagedPart] = []
    for task in range(2):
        stage = connection.stage("query", batch)
        for number in range(4):
            gathered = Gathered(0)
            for row in range(ROWS // 8):
                gathered.append(b"%d %d %d %d" % (batch, task, number, row))
            stage.send("q", [gathered])
            if broker is not None and (task, number) == (1, 1):
                broker.kill()
                broker.start()
        parts += stage.finish()
    return parts


def published(connection: blocking.Connection) -> Counter[bytes]:
    log = connection.log("q")
    lanes = log.describe().lanes
    return Counter(body for lane in lanes for piece in log.read(lane.first, lane.end) for body in piece.batch.bodies())


def expected(batches: int) -> Counter[bytes]:
    rows = range(ROWS // 8)
    return Counter(
        b"%d %d %d %d" % (batch, task, number, row)
        for batch in range(batches) for task in range(2) for number in range(4) for row in rows
    )  # fmt: skip


def test_batches_are_published_once_while_the_broker_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as broker, blocking.connect(broker.address) as connection:
        for batch in range(BATCHES):
            parts = staged(connection, batch, broker if batch % 5 == 1 else None)
            if batch % 5 == 2:
                staged(connection, batch)  # another attempt, which loses
            connection.commit_stage("query", batch, parts)
            if batch % 5 == 3:
                broker.kill()
                broker.start()
                connection.commit_stage("query", batch, parts)  # its answer might have been lost
                connection.commit_stage("query", batch, staged(connection, batch))  # the batch is done again
        assert published(connection) == expected(BATCHES)
        described = connection.request("destination.describe", {"name": "q"}).result
        assert (described["staged"], described["staged_dropped"]) == (0, 0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", Moment)
def test_a_batch_is_published_once_when_the_broker_is_killed_inside_it(tmp_path: Path, moment: Moment) -> None:
    with running(tmp_path) as broker:

        def kill() -> None:
            broker.kill()
            broker.start()

        with StageProxy(broker.address, moment, kill) as proxy, blocking.connect(proxy.address) as connection:
            for batch in range(3):
                connection.commit_stage("query", batch, staged(connection, batch))
            assert proxy.has_struck.is_set()
            assert proxy.commits_held == (moment is not Moment.STAGING)
            assert published(connection) == expected(3)


def _is_created(connection: blocking.Connection) -> bool:
    """A cluster that has just started, on a busy machine, may change its primary once more."""
    try:
        connection.request("destination.create", {"name": "q", "kind": "queue"})
    except Unavailable:
        return False
    return True


@pytest.mark.timeout(180)
@pytest.mark.parametrize("moment", Moment)
def test_a_batch_is_published_once_when_a_primary_is_lost_inside_it(tmp_path: Path, moment: Moment) -> None:
    """The way is over a client manager, which stays."""
    with running_cluster(tmp_path) as cluster, blocking.connect(cluster.addresses) as direct:
        until(lambda: _is_created(direct), "the queue is there")
        group = asyncio.run(cluster.group_of("q"))
        asyncio.run(cluster.until_in_sync(group, 3))
        primary = asyncio.run(cluster.primary_of(group))
        with StageProxy(cluster.addresses[0], moment, lambda: cluster.kill(primary)) as proxy:
            with blocking.connect(proxy.address) as connection:
                for batch in range(3):
                    connection.commit_stage("query", batch, staged(connection, batch))
            assert proxy.has_struck.is_set()
            assert proxy.commits_held == (moment is not Moment.STAGING)
        assert asyncio.run(cluster.primary_of(group)) != primary
        assert published(direct) == expected(3)


def test_what_is_abandoned_or_not_committed_in_time_is_gone(tmp_path: Path) -> None:
    settings = {"destination.staged_keep_s": 0.5}
    with running(tmp_path, settings) as broker, blocking.connect(broker.address) as connection:
        parts = staged(connection, 0)
        connection.abort_stage("query", 0, parts)
        with pytest.raises(Rejected, match="0 are staged"):
            connection.commit_stage("query", 0, parts)
        late = staged(connection, 0)
        broker.kill()
        broker.start()
        assert published(connection) == Counter(), "it is connected again"
        until(lambda: connection.request("destination.describe", {"name": "q"}).result["staged"] == 0, "all dropped")
        with pytest.raises(Rejected, match="0 are staged"):
            connection.commit_stage("query", 0, late)
        broker.until_logged("stage-dropped")
        assert published(connection) == Counter()
