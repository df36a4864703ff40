"""What a user may say when he writes: `df.write.format("angarium").option(...)`."""
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from angarium.client.destination import Destination, Queue, Topic
from angarium.core.errors import ConfigError, Rejected
from angarium.core.names import DEAD_MESSAGE_QUEUE, QUERY_BYTES_MAX, check_name
from angarium.spark.options import ADDRESS_DEFAULT

_KNOWN = {name.lower(): name for name in ("address", "destination", "kind", "jobId", "producerId", "badRows")}
_OF_SPARK = ("checkpointlocation", "queryname")  # what Spark adds to the user's, in lower case
_KINDS: dict[str, Callable[[str], Destination]] = {"any": str, "queue": Queue, "topic": Topic}
_PREFIX_BYTES_MAX = 10  # of ours, before the name of a job or a stream


@dataclass(frozen=True, slots=True)
class SinkOptions:
    address: tuple[str, ...]
    destination: str = ""  # empty: the column of that name says it
    kind: str = "any"
    job: str = ""  # of a batch write
    producer: str = ""  # of a stream, instead of its query's id
    buries: bool = False  # a row that no broker takes goes to the dead message queue; else it fails the batch

    def named(self, name: str) -> Destination:
        return name if name == DEAD_MESSAGE_QUEUE else _KINDS[self.kind](name)

    def refuse_of_stream(self) -> None:
        if self.job:
            raise ConfigError("option 'jobId': it is for df.write; a stream goes by its checkpoint, or 'producerId'")

    def refuse_of_batch(self) -> None:
        if self.producer:
            raise ConfigError("option 'producerId': it is for df.writeStream; give a batch write a 'jobId'")


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises `ConfigError` that names the option, what is wrong with it, and what is valid."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in _KNOWN:
            options[_KNOWN[key.lower()]] = str(value).strip()
        elif key.lower() == "path":
            raise ConfigError("a path is given, and messages have none: use .save() or .start(), and 'destination'")
        elif key.lower() not in _OF_SPARK:
            raise ConfigError(f"unknown option {key!r}; valid for writing are {', '.join(sorted(_KNOWN.values()))}")
    address = options.get("address", os.environ.get("ANGARIUM_ADDRESS", ADDRESS_DEFAULT))
    kind = options.get("kind", "any")
    if kind not in _KINDS:
        raise ConfigError(f"option 'kind': {kind!r} is none of {', '.join(map(repr, _KINDS))}")
    return SinkOptions(
        address=tuple(part.strip() for part in address.split(",") if part.strip()),
        destination=_destination(options.get("destination", "")),
        kind=kind,
        job=_identity("jobId", options),
        producer=_identity("producerId", options),
        buries=_buries(options.get("badRows", "fail")),
    )


def _destination(name: str) -> str:
    try:
        if name:
            check_name(name)
    except Rejected as refused:
        raise ConfigError(f"option 'destination': {refused.reason}") from None
    return name


def _buries(text: str) -> bool:
    if text not in ("fail", "dmq"):
        raise ConfigError(f"option 'badRows': {text!r} is neither 'fail' nor 'dmq'")
    return text == "dmq"


def _identity(option: str, options: Mapping[str, str]) -> str:
    """Empty if it is not given. One that is given and empty would be another one each time, and nobody would see it."""
    text = options.get(option, "")
    if option in options and not text:
        raise ConfigError(f"option {option!r} is empty: give it a name, or leave it out")
    limit = QUERY_BYTES_MAX - _PREFIX_BYTES_MAX
    if len(text.encode()) > limit:
        raise ConfigError(f"option {option!r} has {len(text.encode()):,} bytes: the most is {limit}")
    return text
