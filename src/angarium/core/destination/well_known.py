"""Destinations that are there for everybody, made when they are first needed; clients do not say what they are."""
from angarium.core.destination.dead_message_queue import RECORD as DEAD_MESSAGE_QUEUE_RECORD
from angarium.core.destination.records import DestinationRecord
from angarium.core.names import EVENT_LOG
from angarium.core.wire.frames import DestinationKind

# Events of all nodes. Without a subscription nothing is kept; a subscription that nobody reads keeps the latest, and
# neither blocks anybody nor fills the disk.
EVENT_LOG_RECORD = DestinationRecord(
    EVENT_LOG, DestinationKind.TOPIC, buries=False, messages_max=10_000, bytes_max=16 << 20, slow_subscriber="drop"
)
_RECORDS = {record.name: record for record in (DEAD_MESSAGE_QUEUE_RECORD, EVENT_LOG_RECORD)}


def well_known(name: str, kind: DestinationKind) -> DestinationRecord | None:
    """What it is made as when somebody asks for it. None: the name is no well-known one, or is one of another kind."""
    record = _RECORDS.get(name)
    return record if record is not None and kind in (DestinationKind.ANY, record.kind) else None
