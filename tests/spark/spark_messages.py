"""What was sent, to be compared with what Spark has read."""
import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from angarium import Unavailable, blocking

RETAIN = {"retain_s": 3_600}
# Spark gives the process of a query 10 s to start, which a busy machine may not: then it is started again.
TOO_SLOW = "Python worker failed to connect back"
STARTS_MAX = 5
CREATE_S_MAX = 30.0


class Orders:
    """A client of one broker, and destinations whose names begin alike."""

    def __init__(self, address: str, prefix: str, directory: Path) -> None:
        self.address = address
        self.prefix = prefix
        self.directory = directory
        self.sent: dict[str, list[bytes]] = {}  # bodies by destination, in order
        self.connection = blocking.connect(address.split(","))
        self.session = self.connection.session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def name(self, short: str) -> str:
        return f"{self.prefix}.{short}"

    def create(self, short: str = "a", kind: str = "queue", **options: Any) -> str:
        """Asked again while a cluster that has just started changes its primaries: what is there is left as it is."""
        name, deadline = self.name(short), time.monotonic() + CREATE_S_MAX
        while True:
            try:
                self.connection.request("destination.create", {"name": name, "kind": kind, **(options or RETAIN)})
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                self.sent.setdefault(name, [])
                return name

    def send(self, short: str, count: int, **fields: Any) -> list[bytes]:
        """So many messages with bodies of their own, confirmed when it returns; each has the property `n`."""
        name = self.name(short)
        known = self.sent.setdefault(name, [])
        bodies = [b"%s %d %s" % (name.encode(), n, b"x" * (n % 97)) for n in range(len(known), len(known) + count)]
        for n, body in enumerate(bodies, len(known)):
            self.session.send(name, body, properties={"n": n, "even": n % 2 == 0}, **fields)
        self.session.flush(60)
        known += bodies
        return bodies

    def take(self, short: str, count: int) -> None:
        """Consume and settle so many."""
        with self.session.consume(self.name(short)) as consumer:
            for _ in range(count):
                message = consumer.receive(timeout_s=10)
                assert message is not None
                message.settle()

    def request(self, command: str, **arguments: Any) -> Any:
        return self.connection.request(command, arguments).result

    # -- Spark ---------------------------------------------------------------------------------------

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        reader = spark.read.format("angarium").option("address", self.address)
        return reader.options(**options).load()

    def stream(self, spark: SparkSession, **options: Any) -> DataFrame:
        reader = spark.readStream.format("angarium").option("address", self.address)
        return reader.options(**{"startingOffsets": "earliest", **options}).load()

    def drain(self, frame: DataFrame, name: str = "out") -> None:
        """Run the stream to the end of what there is now, into files, exactly once."""
        writer = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.directory / f"{name}-checkpoint"))
            .option("path", str(self.directory / name))
            .trigger(availableNow=True)
        )
        for patience in reversed(range(STARTS_MAX)):
            try:
                writer.start().awaitTermination()
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error) or not patience:
                    raise
            else:
                return

    def drained(self, spark: SparkSession, name: str = "out") -> DataFrame:
        return spark.read.parquet(str(self.directory / name))


def digest(bodies: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\0".join(sorted(bodies))).hexdigest()


def bodies_of(frame: DataFrame) -> list[bytes]:
    return [bytes(row.body) for row in frame.select("body").collect()]
