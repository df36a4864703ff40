"""Bad rows: rows of a writer that could not become messages. They are all that clients may send to `_DMQ`.

A writer that is asked to (Spark's option `badRows`) stages such a row for `_DMQ`. It has the header `dead_letter`,
which otherwise only the broker gives to dead messages, and no other header. What the header says is checked here: it
may tell of a bad row and of nothing else, so that nobody can forge the death of a message.
"""
from typing import Annotated, Literal

import msgspec

from angarium.core.malformed import MALFORMED
from angarium.core.names import NAME_CHARACTERS_MAX
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns

DETAIL_CHARACTERS_MAX = 1_000


class RowLetter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As in `dead_letters`, of a row."""

    destination: Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]  # where it was to go; perhaps no name
    died_ms: Annotated[int, msgspec.Meta(ge=0)]
    detail: Annotated[str, msgspec.Meta(max_length=DETAIL_CHARACTERS_MAX)]  # what is wrong with it
    subscription: Literal[""] = ""
    position: Literal[0] = 0
    reason: Literal["bad-row"] = "bad-row"
    deliveries: Literal[0] = 0
    expiry_ms: Literal[0] = 0


class _Headers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dead_letter: RowLetter


_decode = msgspec.msgpack.Decoder(_Headers).decode


def encoded(letter: RowLetter) -> bytes:
    """The headers of the message."""
    return msgspec.msgpack.encode(_Headers(letter))


def refusal(batch: Batch) -> str:
    """Empty if all messages of the batch are such rows; else what is wrong."""
    if batch.columns != Columns.HEADERS:
        return "the dead message queue takes rows of a batch with the header 'dead_letter', and nothing beside it"
    for index, header in enumerate(batch.headers() or ()):
        try:
            _decode(bytes(header))
        except MALFORMED as error:
            return f"message {batch.sequence(index)} is no bad row as the header 'dead_letter' tells of one: {error}"
    return ""
