"""What an administrator does with dead messages: look, count, send them back, discard them. The requests `dmq.*`.

    dmq.list       messages that match                     a page, as `destination.browse` has it
    dmq.summary    how many, by where they died and why    of one page
    dmq.redrive    back to where they died, or elsewhere   those of one page, in one write
    dmq.discard    settled                                 the same

One request reads one page of `_DMQ` and answers how far it got (`next`); whoever asks goes on from there until `end`.
A redrive appends there and settles here in one write: it may be interrupted and repeated at any time, and nothing is
lost or doubled. The messages keep their ids and the order in which they died. They do not expire again: an expiry that
has passed is dropped. What a consumer of `_DMQ` holds is left to it, and counted as held. What has nowhere to go (its
destination is gone, nobody subscribes, no room) stays, and is counted with the reason; whoever goes on to the next page
names its destination in `leave`, so that nothing later overtakes it there. What cannot be read any more is set aside by
whoever comes to it to change something, as a consumer would: it could neither go nor be discarded, and takes room.
"""
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from angarium.core.destination import browsing
from angarium.core.destination.arguments import done, number, text, texts
from angarium.core.destination.dead_letters import HEADER, rewritten
from angarium.core.destination.delivery import Damage, damages
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, DamagedBatch, Read, ToSession
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.headers import read_map
from angarium.core.destination.limits import CODE as DESTINATION_FULL
from angarium.core.destination.pending import PendingDead, PendingWrite
from angarium.core.destination.selecting import Keep, kept, selected_by
from angarium.core.errors import Rejected
from angarium.core.ids import parse_id
from angarium.core.names import DEAD_MESSAGE_QUEUE, check_form
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Operation
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Reply, Request

if TYPE_CHECKING:
    from angarium.core.destination.destinations import Destinations

IDS_MAX = 1_000  # of one request
LEAVE_MAX = 1_000  # destinations, the same
COMMANDS = ("dmq.list", "dmq.summary", "dmq.redrive", "dmq.discard")
_encode = msgspec.msgpack.Encoder().encode


def dead_filter(request: Request, *, selector_characters_max: int) -> Keep:
    """Which dead messages are meant: by `destination`, `subscription`, `reason`, `died_before_ms`, `died_after_ms`,
    `selector` and `ids`; what is left out does not matter. Raises Rejected."""
    wanted = {key: text(request, key) for key in ("destination", "subscription", "reason") if key in request.arguments}
    for what in ("destination", "subscription"):
        if wanted.get(what):  # a subscription of a queue, or one that is not durable, has no name
            check_form(wanted[what], what=what)
    before_ms, after_ms = number(request, "died_before_ms", 1 << 62), number(request, "died_after_ms", 0)
    try:
        ids = {parse_id(identity) for identity in texts(request, "ids", count_max=IDS_MAX)}
    except ValueError as error:
        raise Rejected("bad-argument", str(error)) from None
    selected = selected_by(request, characters_max=selector_characters_max)

    def keep(fields: BatchFields, index: int) -> bool:
        death = _death(fields, index)
        return (
            all(death.get(key) == value for key, value in wanted.items())
            and after_ms <= _died_ms(death) < before_ms
            and (not ids or fields.message_id(index) in ids)
            and (selected is None or selected.wants(fields, index))
        )

    return Keep(keep) if selected is None else Keep(keep, at_once=selected.at_once)


def revived(batch: Batch, *, wall_ms: int) -> Batch:
    """Dead messages as they were; but for an expiry that has passed."""
    headers: list[bytes] = []
    expiries_ms: list[int] = []
    for encoded in batch.headers() or [b""] * batch.count:
        header = read_map(encoded)
        death = header.pop(HEADER, None)
        expiry_ms = death.get("expiry_ms", 0) if isinstance(death, dict) else 0
        expiries_ms.append(expiry_ms if isinstance(expiry_ms, int) and expiry_ms > wall_ms else 0)
        headers.append(_encode(header) if header else b"")
    return rewritten(batch, headers, expiries_ms=expiries_ms if any(expiries_ms) else None)


@dataclass(slots=True)
class _Pick:
    """What of one batch is meant and free."""

    batch: Batch
    base: int  # position of its first message
    positions: list[int]


@dataclass(slots=True)
class _Staying:
    """Why messages for one destination stay where they are."""

    code: str
    reason: str
    count: int = 0


@dataclass(slots=True)
class _Page:
    picks: list[_Pick] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    held: int = 0  # meant, and not free
    following: int = 0  # where the next page begins


class DeadMessages:
    def __init__(self, manager: "Destinations") -> None:
        self._manager = manager

    def request(self, session: bytes, request: Request, now: float) -> list[Command]:
        keep = dead_filter(request, selector_characters_max=self._manager.settings.selector_characters_max)
        position, count = max(0, number(request, "position", 0)), number(request, "count", 1 << 62)
        to, leave = text(request, "to", ""), texts(request, "leave", count_max=LEAVE_MAX)
        if to:
            check_form(to)
        if to and to not in leave and (staying := self._hindrance(to)) is not None:
            raise Rejected(staying.code, staying.reason)
        queue = self._manager.find(DEAD_MESSAGE_QUEUE)
        if request.command == "dmq.list" and queue is not None:
            return [browsing.browse(queue, session, request, keep, self._manager.pending_read)]
        if request.command == "dmq.list":  # nothing has died yet
            nothing = {"parts": [], "next": max(0, number(request, "place", 0)), "ends": [], "end": 0}
            return [done(session, request, nothing)]
        if queue is None or position >= queue.log.lanes[0].readable or count <= 0:
            end = 0 if queue is None else queue.log.lanes[0].readable
            nothing = _Result().answer(request.command)
            return [done(session, request, nothing | {"next": max(position, end), "end": end})]
        lane = queue.log.lanes[0]
        position = max(position, lane.first)
        asked = PendingDead(
            queue.identity, session, request.number, request.command, count, position, lane.readable, keep, to,
            frozenset(leave),
        )  # fmt: skip
        token = self._manager.pending_read(asked)
        return [Read(token, queue.identity, position, browsing.READ_BYTES_MAX, lane.readable)]

    def read(self, asked: PendingDead, event: BatchesRead, queue: Destination | None, now: float) -> list[Command]:
        result = _Result()
        if queue is None:
            return [_answered(asked, result, asked.end, asked.end)]
        page = _picked(queue, asked, event)
        result.held, end = page.held, queue.log.lanes[0].readable
        if asked.command == "dmq.summary":
            result.count(page.picks)
            return [_answered(asked, result, page.following, end)]
        commands = [command for damage in page.damaged for command in queue.dispatch.set_aside(damage)]
        operations: list[Operation] = []
        pending = PendingWrite()
        done_with = RangeSet()
        for pick in page.picks:
            if asked.command == "dmq.redrive":
                operations += self._moved(pick, asked, pending, result, done_with, queue.state.wall_ms(now))
            else:
                for position in pick.positions:
                    done_with.add(position, position + 1)
        result.done = done_with.count
        answer = _answered(asked, result, page.following, end)
        if not done_with:
            return [*commands, answer]
        pending.answers.append(answer)
        operations += _settled(queue, list(done_with))
        # A redrive takes room before it makes some; a discard only makes some.
        return [*commands, queue.state.write(operations, pending, freeing=asked.command == "dmq.discard")]

    def _moved(
        self,
        pick: _Pick,
        asked: PendingDead,
        pending: PendingWrite,
        result: "_Result",
        done_with: RangeSet,
        wall_ms: int,
    ) -> list[Operation]:
        """What appends the messages where they belong; those that go are noted in `done_with`, the others stay."""
        fields = BatchFields(pick.batch)
        by_target: dict[str, list[int]] = {}
        for position in pick.positions:
            name = asked.to or str(_death(fields, position - pick.base).get("destination", ""))
            by_target.setdefault(name, []).append(position)
        operations: list[Operation] = []
        for name, positions in by_target.items():
            staying = self._hindrance(name) if name not in asked.leave else _out_of_turn(name)
            target = self._manager.find(name)
            room = 0 if staying is not None or target is None else _room(target, len(positions))
            if room < len(positions):
                full = _Staying(DESTINATION_FULL, f"{name!r} holds as much as its limits allow")
                result.stay(name, staying or full, len(positions) - room)
            if target is None or not room:
                continue
            batch = revived(pick.batch.select([p - pick.base for p in positions[:room]]), wall_ms=wall_ms)
            other = next((o for o in pending.others if o.destination == target.identity), None)
            if other is None:
                other = PendingWrite(destination=target.identity)
                pending.others.append(other)
            operations += target.publishing.append(batch, other)
            for position in positions[:room]:
                done_with.add(position, position + 1)
        return operations

    def _hindrance(self, name: str) -> _Staying | None:
        """Why nothing can be moved to that destination; None if it can."""
        target = self._manager.find(name)
        if target is None:
            return _Staying("unknown-destination", f"there is no {name!r} (any more); create it, or say where to")
        if name == DEAD_MESSAGE_QUEUE:
            return _Staying("reserved-name", f"{name!r} is where they are")
        if not target.state.is_queue and not len(target.subscriptions):
            return _Staying("no-subscription", f"nobody subscribes to {name!r}: there they would be lost")
        if (blocked := target.publishing.hindrance) is not None:
            return _Staying(*blocked)
        return None


@dataclass(slots=True)
class _Result:
    done: int = 0
    held: int = 0
    staying: dict[tuple[str, str], _Staying] = field(default_factory=dict)  # by destination and code
    groups: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)  # count, bytes, first and last death

    def stay(self, name: str, staying: _Staying, count: int) -> None:
        self.staying.setdefault((name, staying.code), staying).count += count

    def count(self, picks: list[_Pick]) -> None:
        for pick in picks:
            fields, offsets = BatchFields(pick.batch), pick.batch.offsets
            for index in (position - pick.base for position in pick.positions):
                death = _death(fields, index)
                key = (str(death.get("destination", "")), str(death.get("subscription", "")), str(death.get("reason")))
                died_ms, body_bytes = _died_ms(death), offsets[index + 1] - offsets[index]
                group = self.groups.setdefault(key, [0, 0, died_ms, died_ms])
                group[:] = group[0] + 1, group[1] + body_bytes, min(group[2], died_ms), max(group[3], died_ms)

    def answer(self, command: str) -> dict[str, Any]:
        match command:
            case "dmq.summary":
                names = ("destination", "subscription", "reason", "count", "bytes", "first_ms", "last_ms")
                groups = [dict(zip(names, (*key, *figures), strict=True)) for key, figures in self.groups.items()]
                return {"groups": groups}
            case "dmq.redrive":
                staying = [
                    {"destination": name, "code": code, "reason": found.reason, "count": found.count}
                    for (name, code), found in self.staying.items()
                ]
                return {"moved": self.done, "held": self.held, "staying": staying}
        return {"discarded": self.done, "held": self.held}


def _answered(asked: PendingDead, result: _Result, following: int, end: int) -> ToSession:
    answer = result.answer(asked.command) | {"next": following, "end": end}
    return ToSession(asked.session, Reply(asked.request, "", "", answer))


def _picked(queue: Destination, asked: PendingDead, event: BatchesRead) -> _Page:
    (subscription,) = queue.subscriptions
    counting = asked.command == "dmq.summary"
    page, wanted = _Page(following=asked.position if event.batches else asked.end), asked.count
    end = min(asked.end, asked.position + asked.keep.at_once)
    at = asked.position  # behind the batch before
    for stored in event.batches:
        if wanted <= 0 or page.following >= end:
            break
        if isinstance(stored, DamagedBatch):
            page.damaged += damages(subscription, at, min(stored.end, asked.end), stored)
        else:
            batch = Batch.trusted(stored.data)
            base, low, high = stored.end - batch.count, max(asked.position, stored.end - batch.count), stored.end
            page.damaged += damages(subscription, at, min(base, asked.end))
            meant = kept(batch, base, browsing.unsettled(queue, low, min(high, end)), asked.keep)
            free = meant if counting else [part for a, b in meant for part in subscription.free_in(a, b)]
            positions = [position for a, b in free for position in range(a, b)][:wanted]
            page.held += sum(b - a for a, b in meant) - sum(b - a for a, b in free)
            wanted -= len(positions)
            if positions:
                page.picks.append(_Pick(batch, base, positions))
                page.following = positions[-1] + 1
        at = stored.end
        if wanted > 0:
            page.following = min(stored.end, end)
    if not event.batches:
        page.damaged += damages(subscription, asked.position, asked.end)
    return page


def _settled(queue: Destination, ranges: list[Range]) -> list[Operation]:
    (subscription,) = queue.subscriptions
    for low, high in ranges:
        subscription.discard(low, high, "discarded")
        queue.counters.settled += high - low
    state = queue.state
    return [*state.streams.release(state.identity, ranges, state.is_needed), *state.saved(subscription)]


def _out_of_turn(name: str) -> _Staying:
    return _Staying("out-of-turn", f"earlier messages for {name!r} stay, and these would overtake them")


def _room(target: Destination, count: int) -> int:
    limits = target.publishing.limits
    return min(count, limits.room()) if limits.refuses() else count


def _death(fields: BatchFields, index: int) -> dict[str, Any]:
    found = fields.header(index, HEADER)
    return found if isinstance(found, dict) else {}


def _died_ms(death: dict[str, Any]) -> int:
    died_ms = death.get("died_ms", 0)
    return died_ms if isinstance(died_ms, int) else 0
