"""Administrative requests to a message manager: list, describe, explain, create, alter, remove, purge,
browse, and those on dead messages, on logs and on stages.

Each command checks its arguments, and answers with one Reply; what changes the store is answered when it is
durable.
"""
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from angarium.core.commands import check_arguments, unknown_command
from angarium.core.destination import browsing, explaining, log_reading, redriving, stage_requests
from angarium.core.destination.arguments import done, text
from angarium.core.destination.command_specs import SPECS
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import (
    BatchesRead,
    Command,
    Read,
    ToSession,
)
from angarium.core.destination.log import lane_of
from angarium.core.destination.names import LIST_COUNT_MAX, Names
from angarium.core.destination.options import NAMES as OPTION_NAMES
from angarium.core.destination.options import options_of, with_options
from angarium.core.destination.pending import (
    TAKEN_OUT,
    PendingAdministration,
    PendingBrowse,
    PendingDead,
    PendingExplain,
    PendingLogRead,
    PendingSeek,
    PendingWrite,
)
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.selecting import selected_by
from angarium.core.destination.tracing import traced_state
from angarium.core.errors import Rejected
from angarium.core.ids import format_id, group_of
from angarium.core.names import DEAD_MESSAGE_QUEUE, check_form
from angarium.core.storage import Put, Table, key_of
from angarium.core.wire.frames import DestinationKind, Reply, Request

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

SUBSCRIPTIONS_SHOWN_MAX = 1_000  # of one destination; `subscription_count` tells how many there are
_KINDS = {"queue": DestinationKind.QUEUE, "topic": DestinationKind.TOPIC}


class Administration:
    def __init__(self, manager: "MessageManager") -> None:
        self._manager = manager
        self._dead_messages = redriving.DeadMessages(manager)
        self._names = Names(manager.destinations)
        self._stages = stage_requests.StageRequests(manager)
        self._log_reading = log_reading.LogReading(manager, self._names)
        self._commands: dict[str, Callable[[bytes, Request, float], list[Command]]] = {
            "destination.list": self._list,
            "destination.describe": self._describe,
            "destination.create": self._create,
            "destination.alter": self._alter,
            "destination.remove": self._remove,
            "destination.purge": self._purge,
            "destination.browse": self._browse,
            "destination.explain": self._explain,
            "subscription.remove": self._remove_subscription,
            "transaction.list": self._list_transactions,
            "trace.describe": self._trace,
            **dict.fromkeys(redriving.COMMANDS, self._dead_messages.request),
            **dict.fromkeys(log_reading.COMMANDS, self._log_reading.request),
            **dict.fromkeys(stage_requests.COMMANDS, self._stages.request),
        }

    def request(self, session: bytes, request: Request, *, now: float) -> list[Command]:
        command = self._commands.get(request.command)
        try:
            if command is None:
                raise unknown_command(request.command, self._commands)
            check_arguments(SPECS[request.command], request.arguments)
            self._check_here(request)
            return command(session, request, now)
        except Rejected as refusal:
            return [ToSession(session, Reply(request.number, refusal.code, refusal.reason))]

    # -- commands ------------------------------------------------------------------------------------

    def _list(self, session: bytes, request: Request, now: float) -> list[Command]:
        """One page, by name, of those after `after` that begin with `prefix`; an empty one is the end."""
        page: list[dict[str, Any]] = []
        subscriptions = 0
        for destination in self._names.page(request):
            if subscriptions > SUBSCRIPTIONS_SHOWN_MAX:
                break
            page.append(describe(destination))
            subscriptions += len(destination.subscriptions)
        return [done(session, request, page)]

    def _describe(self, session: bytes, request: Request, now: float) -> list[Command]:
        return [done(session, request, describe(self._named(request)))]

    def _create(self, session: bytes, request: Request, now: float) -> list[Command]:
        kind = _KINDS.get(text(request, "kind", "queue"))
        if kind is None:
            raise Rejected("bad-argument", "kind is 'queue' or 'topic'")
        wanted = with_options(DestinationRecord(text(request, "name"), kind), request.arguments)
        if request.arguments.get("temporary"):
            destination, operations = self._manager.create_temporary(wanted, client=request.client, session=session)
        else:
            destination, operations = self._manager.create(wanted.name, kind, wanted)
        if not operations:
            given = [name for name in OPTION_NAMES if name in request.arguments]
            differing = [name for name in given if getattr(destination.record, name) != getattr(wanted, name)]
            if differing:
                is_now = ", ".join(f"{name} = {getattr(destination.record, name)!r}" for name in differing)
                raise Rejected("already-exists", f"{wanted.name!r} exists with {is_now}; change it with alter")
            return [done(session, request, describe(destination))]
        answer = done(session, request, describe(destination))
        return [self._manager.write_creation(destination, operations, answer)]

    def _alter(self, session: bytes, request: Request, now: float) -> list[Command]:
        destination = self._named(request)
        record = with_options(destination.record, request.arguments)
        if destination.identity not in self._manager.destinations:  # the dead message queue, which is needed now
            destination, operations = self._manager.created(record)
            answer = done(session, request, describe(destination))
            return [self._manager.write_creation(destination, operations, answer)]
        commands = destination.alter(record)
        self._manager.retainer.note(destination, now)
        answer = done(session, request, describe(destination))
        noted = Put(Table.DESTINATION, key_of(destination.identity), msgspec.msgpack.encode(record))
        # Not ahead of the creation that it changes.
        freeing = self._manager.is_stored(destination)
        others, operations = self._manager.tracer.prepared(record)
        pending = PendingWrite(answers=[answer], others=others, follows=lambda _: self._follow(destination))
        return [*commands, self._manager.write([noted, *operations], pending, freeing=freeing)]

    def _follow(self, destination: Destination) -> list[Command]:
        if self._manager.destinations.get(destination.identity) is destination:
            self._manager.tracer.follow(destination)
        return []

    def _trace(self, session: bytes, request: Request, now: float) -> list[Command]:
        """Told when all that was traced before is durable, and may be read."""
        destination = self._named(request)
        if destination.state.trace is None:
            name = destination.record.name
            raise Rejected("not-traced", f"{name!r} is not traced; angarium alter {name} --traced, and what follows is")
        told = traced_state(destination)
        record = msgspec.msgpack.encode(destination.record)  # as it is: a write behind all that is on its way
        noted = Put(Table.DESTINATION, key_of(destination.identity), record)
        operations = [noted, *self._manager.tracer.flush(freeing=True)]
        answer = done(session, request, told | {"trace_messages": self._manager.tracer.messages})
        return [self._manager.write(operations, PendingWrite(answers=[answer]), freeing=True)]

    def _remove(self, session: bytes, request: Request, now: float) -> list[Command]:
        destination = self._named(request)
        if (name := destination.record.name) == DEAD_MESSAGE_QUEUE:
            raise Rejected("reserved-name", f"{name!r} is always there: purge it instead")
        answer = done(session, request, {"removed": name})
        return self._manager.remove(destination, PendingWrite(answers=[answer]))

    def _purge(self, session: bytes, request: Request, now: float) -> list[Command]:
        destination = self._named(request)
        purged, operations = destination.purge()
        answer = done(session, request, {"purged": purged})
        if not operations:
            return [answer]
        return [destination.state.write(operations, PendingWrite(answers=[answer]), freeing=True)]

    def _remove_subscription(self, session: bytes, request: Request, now: float) -> list[Command]:
        name = text(request, "subscription")
        check_form(name, what="subscription")
        destination = self._named(request)
        subscription = destination.subscriptions.get(name)
        if subscription is None or not subscription.durable:
            reason = f"{destination.record.name!r} has no durable subscription {name!r}"
            raise Rejected("unknown-subscription", reason)
        if subscription.consumers:
            raise Rejected("subscription-in-use", f"subscription {name!r} has an active consumer; close it first")
        if (until := subscription.parking.deadline()) is not None:
            reason = f"subscription {name!r} is kept {max(0.0, until - now):.1f} s more for a consumer that was cut off"
            raise Rejected("subscription-in-use", f"{reason}; wait, or close its session")
        return destination.consuming.end_subscription(subscription, [done(session, request, {"removed": name})])

    def _list_transactions(self, session: bytes, request: Request, now: float) -> list[Command]:
        """Those that are prepared here and not decided, the oldest first, and how many others wait to hear from us."""
        transactions = self._manager.transactions
        listed = [
            {"session": format_id(owner), "number": number, "decider": record.decider, "since_ms": record.since_ms,
             "sends": len(record.publishes), "settles": len(record.settles)}
            for (owner, number), record in islice(transactions.participant, LIST_COUNT_MAX)
        ]  # fmt: skip
        counts = {"prepared_count": len(transactions.participant), "decided_count": len(transactions.decisions)}
        return [done(session, request, {"prepared": listed, **counts})]

    def _browse(self, session: bytes, request: Request, now: float) -> list[Command]:
        keep = selected_by(request, characters_max=self._manager.settings.selector_characters_max)
        return [browsing.browse(self._named(request), session, request, keep, self._manager.pending_read)]

    def _explain(self, session: bytes, request: Request, now: float) -> list[Command]:
        destination = self._named(request)
        position = explaining.sample_position(destination)
        if position is None:
            return [done(session, request, explaining.explain(destination, [], now=now))]
        token = self._manager.pending_read(PendingExplain(destination.identity, session, request.number, position))
        readable = destination.log.lanes[lane_of(position)].readable
        return [Read(token, destination.identity, position, explaining.SAMPLE_BYTES_MAX, readable)]

    def read(
        self, asked: PendingAdministration, event: BatchesRead, destination: Destination | None, *, now: float
    ) -> list[Command]:
        """What a request asked the disk for."""
        if asked.destination == TAKEN_OUT:
            reason = "the destination is being moved to another replica group; ask again"
            return [ToSession(asked.session, Reply(asked.request, "moving", reason))]
        match asked:
            case PendingBrowse():
                return [browsing.browsed(asked, event, destination)]
            case PendingDead():
                return self._dead_messages.read(asked, event, destination, now)
            case PendingLogRead() | PendingSeek():
                return self._log_reading.read(asked, event, destination)
        if destination is None:
            reason = "the destination has been removed meanwhile"
            return [ToSession(asked.session, Reply(asked.request, "unknown-destination", reason))]
        sample = explaining.sample(destination, asked.position, event)
        told = explaining.explain(destination, sample, now=now)
        return [ToSession(asked.session, Reply(asked.request, "", "", told))]

    # -- arguments -----------------------------------------------------------------------------------

    def _check_here(self, request: Request) -> None:
        name = request.arguments.get("name")
        if isinstance(name, str) and (away := self._manager.moves.why_away(name)) is not None:
            raise Rejected(*away)

    def _named(self, request: Request) -> Destination:
        name = text(request, "name")
        destination = self._manager.find(name) or self._manager.dead_message_queue_unused(name)
        if destination is None:
            check_form(name)
            raise Rejected("unknown-destination", f"there is no destination {name!r}")
        return destination


def describe(destination: Destination) -> dict[str, Any]:
    counters, log = destination.counters, destination.log
    subscriptions = list(destination.subscriptions)
    waiting = [s.waiting_count(log) for s in subscriptions]
    mean_bytes = counters.bytes_in / counters.messages_in if counters.messages_in else 0.0
    return {
        "name": destination.record.name,
        "kind": destination.record.kind.name.lower(),
        "group": group_of(destination.identity),
        **options_of(destination.record),
        "temporary": bool(destination.record.owner),
        "messages": max(waiting, default=0),
        "bytes_mean": round(mean_bytes),
        "first_position": log.lanes[0].first,
        "next_position": log.lanes[0].readable,
        "producers": len(destination.producers.attached()),
        "consumers": len(destination.consumers),
        "in_flight": sum(s.in_flight_count() for s in subscriptions),
        "locked": sum(s.locks.count for s in subscriptions),
        "prepared": destination.state.reserved,
        "messages_in": counters.messages_in,
        "messages_out": counters.messages_out,
        "settled": counters.settled,
        "rejected": counters.rejected,
        "expired": counters.expired,
        "dead": counters.dead,
        "delayed": destination.publishing.delays.count,
        "staged": destination.publishing.staging.count,
        "staged_dropped": destination.publishing.staging.dropped,
        "bytes": log.stored_bytes,
        "bytes_held": destination.publishing.limits.held()[1],
        "retained": destination.state.retained_count(),
        "damaged": counters.damaged,
        "blocked": ": ".join(destination.publishing.blocked or ()),
        "subscriptions": [
            {
                "name": s.name,
                "durable": s.durable,
                "messages": s.waiting_count(log),
                "in_flight": s.in_flight_count(),
                "consumers": len(s.consumers),
                "redelivered": s.redeliveries.count,
                "selector": s.selector,
                "shared": s.shared,
                "dropped": s.dropped,
            }
            for s in subscriptions[:SUBSCRIPTIONS_SHOWN_MAX]
        ],
        "subscription_count": len(subscriptions),
        **({"readers": readers} if (readers := destination.state.log_readers.told(log)) else {}),
    }
