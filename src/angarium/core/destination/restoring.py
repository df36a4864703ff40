"""From the tables of a store to destinations as they were: what a message manager takes up when it starts."""
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.destination import Destination
from angarium.core.destination.log import parse_log_record
from angarium.core.destination.pages import delete_pages, parse_page_key
from angarium.core.destination.records import DestinationRecord, parse_attached_key
from angarium.core.destination.subscription_record import StoredSubscription, SubscriptionRecord
from angarium.core.errors import StorageCorrupt
from angarium.core.ids import destination_id, group_of
from angarium.core.malformed import MALFORMED
from angarium.core.storage import Operation, Table, delete_prefix
from angarium.core.stream.events import StoredFile

NEXT_DESTINATION_KEY = b"next-destination"
_OF_NO_DESTINATION = (
    Table.NODE, Table.TRANSACTION, Table.PREPARED, Table.DECISION, Table.REPLICA, Table.GROUPS, Table.MOVE,
)  # fmt: skip
_T = TypeVar("_T")


@dataclass(slots=True)
class StoredState:
    """The tables that a message manager needs in memory; they grow with destinations, not with messages."""

    node: dict[bytes, bytes] = field(default_factory=dict)
    destinations: dict[bytes, bytes] = field(default_factory=dict)
    logs: dict[bytes, bytes] = field(default_factory=dict)
    subscriptions: dict[bytes, bytes] = field(default_factory=dict)
    pages: dict[bytes, bytes] = field(default_factory=dict)
    producers: dict[bytes, bytes] = field(default_factory=dict)
    attached: dict[bytes, bytes] = field(default_factory=dict)
    streams: dict[bytes, bytes] = field(default_factory=dict)
    deduplication: dict[bytes, bytes] = field(default_factory=dict)
    last_values: dict[bytes, bytes] = field(default_factory=dict)
    stage_parts: dict[bytes, bytes] = field(default_factory=dict)
    stage_commits: dict[bytes, bytes] = field(default_factory=dict)
    transactions: dict[bytes, bytes] = field(default_factory=dict)
    prepared: dict[bytes, bytes] = field(default_factory=dict)
    decisions: dict[bytes, bytes] = field(default_factory=dict)
    moves: dict[bytes, bytes] = field(default_factory=dict)
    stream_files: dict[bytes, StoredFile] = field(default_factory=dict)  # by identity

    def tables(self) -> dict[Table, dict[bytes, bytes]]:
        """By the table that each is read from."""
        return {
            Table.NODE: self.node,
            Table.DESTINATION: self.destinations,
            Table.LOG: self.logs,
            Table.SUBSCRIPTION: self.subscriptions,
            Table.PAGE: self.pages,
            Table.PRODUCER: self.producers,
            Table.ATTACHED: self.attached,
            Table.DEDUPLICATION: self.deduplication,
            Table.LAST_VALUE: self.last_values,
            Table.STAGE_PART: self.stage_parts,
            Table.STAGE_COMMIT: self.stage_commits,
            Table.TRANSACTION: self.transactions,
            Table.PREPARED: self.prepared,
            Table.DECISION: self.decisions,
            Table.STREAM: self.streams,
            Table.MOVE: self.moves,
        }


def stored_records(state: StoredState, group: int) -> tuple[int, dict[int, DestinationRecord]]:
    """The id that the next destination gets, and the records of those that exist."""
    records: dict[int, DestinationRecord] = {}
    for key, value in state.destinations.items():
        identity = int.from_bytes(key, "big")
        records[identity] = _decode(value, DestinationRecord, f"destination {identity}")
    noted = int.from_bytes(state.node.get(NEXT_DESTINATION_KEY, b""), "big") or destination_id(group, 1)
    strange = next((identity for identity in (*records, noted - 1) if group_of(identity) != group), None)
    if strange is not None:
        reason = f"destination {strange} is of replica group {group_of(strange)}, and this is group {group}"
        raise StorageCorrupt(f"{reason}: the store belongs to another group; give each its own directory")
    return max([noted, *(identity + 1 for identity in records)]), records


def take_up(
    destinations: dict[int, Destination], state: StoredState, *, now: float, arriving: Iterable[int] = ()
) -> list[Operation]:
    """Give each destination its stored records; returns the corrections that the store needs. `arriving`: ids of
    destinations that are being moved here, and are not to be known yet: their records stay."""
    logs: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
    for key, value in state.logs.items():
        identity, log_field, figures = parse_log_record(key, value)
        logs.setdefault(identity, {})[log_field] = figures
    for identity, known in destinations.items():
        known.restore_log(logs.get(identity, {}), now=now)
    corrections = _take_up_subscriptions(destinations, state, now)
    for key, value in state.producers.items():
        if (owner := destinations.get(int.from_bytes(key[:8], "big"))) is not None:
            owner.producers.restore(key[8:], value)
    for destination in destinations.values():
        destination.producers.sort_restored()
    corrections += _take_up_names(destinations, state)
    _take_up_stages(destinations, state)
    return corrections + _sweep({*destinations, *arriving}, state)


def _take_up_subscriptions(
    destinations: dict[int, Destination], state: StoredState, now: float
) -> list[Operation]:
    corrections: list[Operation] = []
    attached: dict[tuple[int, str], dict[ConsumerKey, int]] = {}
    for key, value in state.attached.items():
        identity, consumer, name = parse_attached_key(key)
        attached.setdefault((identity, name), {})[consumer] = int.from_bytes(value, "big")
    pages: dict[tuple[int, str], dict[int, bytes]] = {}
    for key, value in state.pages.items():
        identity, name, page = parse_page_key(key)
        pages.setdefault((identity, name), {})[page] = value
    for key, value in state.subscriptions.items():
        identity, name = int.from_bytes(key[:8], "big"), key[8:].decode()
        if (destination := destinations.get(identity)) is not None:
            record = _decode(value, SubscriptionRecord, f"subscription {name!r} of {destination.record.name!r}")
            consumers = attached.pop((identity, name), {})
            stored = StoredSubscription(record, pages.pop((identity, name), {}))
            corrections += destination.restore_subscription(name, stored, consumers, now=now)
    corrections += [delete_pages(identity, name) for identity, name in pages if identity in destinations]
    return corrections


def _take_up_names(destinations: dict[int, Destination], state: StoredState) -> list[Operation]:
    """Deduplication ids and last-value keys."""
    ids: dict[int, dict[int, bytes]] = {}
    for key, value in state.deduplication.items():
        ids.setdefault(int.from_bytes(key[:8], "big"), {})[int.from_bytes(key[8:], "big")] = value
    positions: dict[int, dict[bytes, int]] = {}
    for key, value in state.last_values.items():
        positions.setdefault(int.from_bytes(key[:8], "big"), {})[key[8:]] = int.from_bytes(value, "big")
    corrections: list[Operation] = []
    for identity in sorted({*ids, *positions} & destinations.keys()):
        corrections += destinations[identity].restore_names(ids.get(identity, {}), positions.get(identity, {}))
    return corrections


def _take_up_stages(destinations: dict[int, Destination], state: StoredState) -> None:
    found: dict[int, tuple[dict[bytes, bytes], dict[bytes, bytes]]] = {}
    for place, records in enumerate((state.stage_parts, state.stage_commits)):
        for key, value in records.items():
            found.setdefault(int.from_bytes(key[:8], "big"), ({}, {}))[place][key[8:]] = value
    for identity, (parts, commits) in found.items():
        if (destination := destinations.get(identity)) is not None:
            destination.publishing.staging.restore(parts, commits)


def _sweep(known: set[int], state: StoredState) -> list[Operation]:
    """Delete what belongs to no destination: writes that overtook, on a full disk, its removal."""
    keys = (*state.logs, *state.subscriptions, *state.pages, *state.producers, *state.attached, *state.streams,
            *state.deduplication, *state.last_values, *state.stage_parts, *state.stage_commits)  # fmt: skip
    strays = {int.from_bytes(key[:8], "big") for key in keys} - known
    tables = [table for table in Table if table not in _OF_NO_DESTINATION]
    return [delete_prefix(table, identity) for identity in sorted(strays) for table in tables]


def _decode(value: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except MALFORMED as error:
        raise StorageCorrupt(f"{what}: {error}") from None
