"""One session of a client, as its client manager sees it: a pure machine.

A session checks what its client sends, finds the destination behind each producer and consumer, and passes the frames
on to the bus; what comes back from the bus goes to the client. It keeps no messages.

    open request --> LOCATING --Located--> OPENING --Opened--> OPEN --Closed--> (gone)

What a client says of a consumer right after opening it waits until the destination is located. What it sent before it
could know that the broker had closed a producer or consumer is ignored: of those some are remembered, and by the
highest number that no longer is, all below it. Anything else for a producer or consumer that is not open is the
client's error.
"""
from collections.abc import Sequence

from msgspec.structs import replace

from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import GlobalIds, destination_id, group_of
from angarium.core.names import ADMINISTRATION, check_name
from angarium.core.session.administration_desk import AdministrationDesk
from angarium.core.session.events import Command, SendFrame, SessionSettings, ToBus
from angarium.core.session.links import (
    Asked,
    Link,
    LinkState,
    check_batch,
    check_producer,
    check_resume,
    is_for_the_dead,
)
from angarium.core.session.requests import Requests
from angarium.core.session.stream_links import FROM_BUS, FROM_CLIENT, StreamLinks
from angarium.core.session.unconfirmed import Unconfirmed
from angarium.core.session.waiting import WaitingBytes
from angarium.core.session.watch_links import WatchLinks
from angarium.core.transaction.coordinator import Coordinator, divide
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Frame

_NUMBER_MAX = (1 << 32) - 1
_WAITING_FRAMES_MAX = 1_000  # of one consumer that is not located yet
_CLOSED_MAX = 100  # producers and consumers closed by the broker that a session remembers
_Answer = frames.ProducerOpened | frames.ConsumerOpened | frames.ProducerClosed | frames.ConsumerClosed


class Session:
    def __init__(
        self,
        connection: int,
        number: int,
        identity: bytes,
        client: bytes,
        settings: SessionSettings,
        ids: GlobalIds,
        waiting: WaitingBytes,
        groups: Sequence[int] = (0,),
        desk: AdministrationDesk | None = None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.identity = identity
        self.client = client  # the identity of the connection
        self.is_transacted = False  # it publishes and settles by Commit alone
        self.turn = 0  # how often it was resumed, as its client says
        self._has_spoken = False  # its client has sent something in it
        self.settings = settings
        self._ids = ids
        self._waiting = waiting  # of the whole connection
        self._groups = groups  # all replica groups that there are
        self._desk = desk  # for what is sent to `_ADMIN`
        # After a resume, frames meant for the session's earlier connection may still come from the bus. Those of a
        # producer or consumer count only once it is open, and open it is by an answer that repeats this.
        self._attachment = ids.next()
        self._producers: dict[int, Link] = {}
        self._consumers: dict[int, Link] = {}
        self._streams = StreamLinks(identity, self._attachment, ids)
        self._coordinator = Coordinator(identity, self._attachment)
        self._watches = WatchLinks(self._attachment, watches_max=settings.watches_max)
        self._locating: dict[Asked, dict[tuple[bool, int], Link]] = {}  # ... and then by (is a producer, number)
        # Closed by the broker, oldest first. Of producers and of consumers: the highest number that is forgotten.
        self._ended_links: dict[tuple[bool, int], None] = {}
        self._forgotten = {True: -1, False: -1}
        self._unconfirmed = Unconfirmed()
        self._stalled = False
        self._requests = Requests(identity, ids, waiting, requests_max=settings.requests_max)
        self._committing = 0  # number of the commit that is not answered yet

    def destinations(self) -> list[int]:
        """All that know this session. 0: the message manager itself, which remembers the last commit and watches."""
        links = (*self._producers.values(), *self._consumers.values())
        identities = dict.fromkeys(link.destination for link in links if link.destination)
        identities |= dict.fromkeys(self._streams.destinations())
        if self.is_transacted or self._watches:
            identities[0] = None
        return list(identities)

    def known_to(self) -> list[int]:
        """Who has to hear of its end. Last the message manager itself, if there is one that may remember where answers
        to this session go: what it has located, asked and closed before is no longer among its destinations."""
        known = dict.fromkeys(destination for destination in self.destinations() if destination)
        if self._has_spoken or self.is_transacted:
            known[0] = None
        return list(known)

    def ended(self, *, closed: bool) -> list[Command]:
        """To be told to all who know this session, behind all that they were sent before."""
        frame = frames.SessionEnded(closed)
        return [ToBus(self.identity, identity, frame) for identity in self.known_to()]

    def stall(self, stalled: bool) -> list[Command]:
        """The connection takes no more (or does again): consumers of this session are passed over."""
        self._stalled = stalled
        told = dict.fromkeys(link.destination for link in self._consumers.values() if link.destination)
        return [*(ToBus(self.identity, d, frames.Stall(stalled)) for d in told), *self._ask_next()]

    def forget_waiting(self) -> None:
        """The session ends: what waits in it waits no longer."""
        links = [link for found in self._locating.values() for link in found.values()]
        self._waiting.remove(sum(link.waiting_bytes for link in links))
        self._requests.clear()
        self._locating.clear()

    def depends_on(self, group: int) -> bool:
        """Whether anything of this session is at that replica group, or may be. What was asked of the message manager
        itself may have been asked of any."""
        if self._locating or self._watches or self._committing or self._requests.is_asking_manager:
            return True
        links = (*self._producers.values(), *self._consumers.values())
        at_group = (link.state is not LinkState.CLOSED and group_of(link.destination) == group for link in links)
        return any(at_group) or self._streams.depend_on(group)

    def lose_request(self) -> list[Command]:
        """Whoever was asked will not answer."""
        lost = self._requests.lose()
        return [] if lost is None else [self._to_client(lost), *self._ask_next()]

    # -- from the client -----------------------------------------------------------------------------

    def client_frame(self, frame: Frame, payload: bytes, size_bytes: int) -> list[Command]:
        """A frame that the client sent in this session; raises RemoteProtocolError if it may not."""
        self._has_spoken = True
        match frame:
            case frames.Publish(number):
                return self._publish(number, frame, payload)
            case frames.Settle(number) | frames.Credit(number) | frames.Recover(number):
                return self._for_consumer(number, frame, size_bytes)
            case frames.ProducerOpen(number):
                self._check_free(self._producers, number, "producer")
                return self._open_producer(frame, size_bytes)
            case frames.ConsumerOpen(number):
                self._check_free(self._consumers, number, "consumer")
                check_resume(frame)
                return self._open(self._consumers, number, frame, size_bytes)
            case frames.ProducerClose(number):
                return self._close_producer(number, frame)
            case frames.ConsumerClose(number):
                return self._close_consumer(number, frame, size_bytes)
            case frames.Request():
                self._requests.add(frame, size_bytes, client=self.client)
                return self._ask_next()
            case frames.Commit():
                return self._commit(frame, payload)
            case frames.Watch() | frames.WatchClose():
                return self._watch(frame)
        if isinstance(frame, FROM_CLIENT):
            posted, answers = self._streams.client_frame(frame, payload, self._destination_of)
            return [*posted, *map(self._to_client, answers)]
        raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} is not for a client to send here")

    def _watch(self, frame: frames.Watch | frames.WatchClose) -> list[Command]:
        if isinstance(frame, frames.WatchClose):
            return [ToBus(self.identity, 0, posted) for posted in self._watches.close(frame)]
        posts, answers = self._watches.open(frame)
        return [*(ToBus(self.identity, 0, posted) for posted in posts), *map(self._to_client, answers)]

    def _ask_next(self) -> list[Command]:
        return [] if self._stalled else list(self._requests.ask_next())

    def _replied(self, frame: frames.Reply, payload: bytes) -> list[Command]:
        reply = self._requests.replied(frame)
        return [] if reply is None else [self._to_client(reply, payload), *self._ask_next()]

    def _check_free(self, links: dict[int, Link], number: int, what: str) -> None:
        known = links.get(number)
        if known is not None and known.state is not LinkState.CLOSED:
            raise RemoteProtocolError("number-in-use", f"{what} {number} is open already")
        if not 0 <= number <= _NUMBER_MAX:
            raise RemoteProtocolError("bad-frame", f"{what} number {number} is outside 0..{_NUMBER_MAX}")
        open_count = len(self._producers) + len(self._consumers) - len(self._ended_links)
        if open_count >= self.settings.links_max:
            reason = f"session {self.number} has {open_count:,} producers and consumers open, links_max; close some"
            raise RemoteProtocolError("too-many-links", reason)

    def _open_producer(self, frame: frames.ProducerOpen, size_bytes: int) -> list[Command]:
        check_producer(frame)
        if not frame.identity:
            frame = replace(frame, identity=self._ids.next())
        self._unconfirmed.forget(frame.producer)
        if frame.query and self.is_transacted:
            reason = "what a transaction sends cannot be staged: use a session that is not transacted"
            return [self._refused(frame, "stage-refused", reason)]
        if frame.destination == ADMINISTRATION:
            return self._open_administration(frame)
        return self._open(self._producers, frame.producer, frame, size_bytes)

    def _open_administration(self, frame: frames.ProducerOpen) -> list[Command]:
        """The client manager itself takes what is sent there: there is nobody to ask."""
        if self.is_transacted or self._desk is None:
            reason = f"{ADMINISTRATION!r} takes no part in transactions: use a session that is not transacted"
            return [self._refused(frame, "reserved-name", reason)]
        self._ended_links.pop((True, frame.producer), None)
        self._producers[frame.producer] = Link(frame, LinkState.OPEN, is_desk=True)
        return [self._to_client(frames.ProducerOpened(frame.producer, frame.identity, frame.confirmed))]

    def _administer(self, number: int, batch: Batch) -> list[Command]:
        assert self._desk is not None
        taken = self._desk.taken(number, batch, client=self.client)
        if isinstance(taken, frames.Refuse):
            return [self._to_client(taken), self._to_client(frames.Confirm(number, batch.last_sequence))]
        return [self._to_client(frames.Confirm(number, batch.last_sequence)), *taken]

    def _open(
        self, links: dict[int, Link], number: int, frame: frames.ProducerOpen | frames.ConsumerOpen, size_bytes: int
    ) -> list[Command]:
        try:
            check_name(frame.destination, reading=isinstance(frame, frames.ConsumerOpen) or is_for_the_dead(frame))
            if isinstance(frame, frames.ConsumerOpen) and frame.subscription:
                check_name(frame.subscription, what="subscription")
        except Rejected as refusal:
            return [self._refused(frame, refusal.code, refusal.reason)]
        self._waiting.add(size_bytes)
        key = (links is self._producers, number)
        self._ended_links.pop(key, None)
        opening = replace(frame, attachment=self._attachment, client=self.client)
        if isinstance(opening, frames.ConsumerOpen):
            opening = replace(opening, transacted=self.is_transacted)
        link = links[number] = Link(opening, waiting_bytes=size_bytes)
        self._locating.setdefault(link.asked, {})[key] = link
        return [ToBus(self.identity, 0, frames.Locate(*link.asked))]

    def _refused(self, frame: frames.ProducerOpen | frames.ConsumerOpen, code: str, reason: str) -> SendFrame:
        if isinstance(frame, frames.ProducerOpen):
            return self._to_client(frames.ProducerClosed(frame.producer, code, reason))
        return self._to_client(frames.ConsumerClosed(frame.consumer, code, reason))

    def _commit(self, frame: frames.Commit, payload: bytes) -> list[Command]:
        """Look up where everything goes. What has ended meanwhile has no destination: whether that matters, only the
        message manager knows, for it may have committed this before."""
        if not self.is_transacted:
            raise RemoteProtocolError("unexpected-frame", f"Commit in session {self.number}, which is not transacted")
        publishes: list[tuple[int, int, int]] = []
        at = 0
        for number, size_bytes in frame.publishes:
            link = self._producers.get(number)
            batch = Batch.parse(payload[at : at + size_bytes])
            at += size_bytes
            check_batch(batch, link, self.settings.body_bytes_max)
            publishes.append((self._usable(link), number, size_bytes))
        if at != len(payload):
            raise RemoteProtocolError("bad-frame", f"Commit {frame.number} has {len(payload) - at} bytes too many")
        settles = [(self._usable(self._consumers.get(number)), number, ranges) for number, ranges in frame.settles]
        self._committing = frame.number
        commit = frames.TransactionCommit(frame.number, publishes, settles, self._attachment)
        if len(self._groups) == 1:
            return [ToBus(self.identity, destination_id(self._groups[0], 0), commit, payload)]
        if not all(destination for destination, _, _ in (*publishes, *settles)):
            return [*self._coordinator.ask_all(frame.number, self._groups)]
        parts = divide(commit, payload)
        if len(parts) > 1:
            return [*self._coordinator.begin(frame.number, parts)]
        return [ToBus(self.identity, destination_id(min(parts, default=self._groups[0]), 0), commit, payload)]

    def _usable(self, link: Link | None) -> int:
        return link.destination if link is not None and link.state is LinkState.OPEN else 0

    def _publish(self, number: int, frame: frames.Publish, payload: bytes) -> list[Command]:
        link = self._producers.get(number)
        if link is None and number <= self._forgotten[True]:
            return []
        if link is None or link.state not in (LinkState.OPEN, LinkState.CLOSED):
            raise RemoteProtocolError("not-open", f"producer {number} is not open")
        if link.state is LinkState.CLOSED:
            return []
        if self.is_transacted:
            raise RemoteProtocolError("unexpected-frame", "a transacted session publishes by Commit")
        batch = Batch.parse(payload)
        check_batch(batch, link, self.settings.body_bytes_max)
        if link.is_desk:
            return self._administer(number, batch)
        self._unconfirmed.add(number, batch.last_sequence, len(payload))
        # A client may send while it has less than its window unconfirmed: one frame, at most, goes beyond.
        limit, frame_bytes_max = self.settings.unconfirmed_bytes_max, self.settings.frame_bytes_max
        if self._unconfirmed.bytes > limit + frame_bytes_max:
            reason = (
                f"producer {number}: {self._unconfirmed.bytes:,} bytes of session {self.number} are unconfirmed: the "
                f"most is unconfirmed_bytes_max {limit:,} and one frame of {frame_bytes_max:,}; wait for Confirm"
            )
            raise RemoteProtocolError("window-exceeded", reason)
        return [ToBus(self.identity, link.destination, frame, payload)]

    def _for_consumer(self, number: int, frame: Frame, size_bytes: int) -> list[Command]:
        link = self._consumers.get(number)
        if link is None and number <= self._forgotten[False]:
            return []
        if link is None or link.state is LinkState.CLOSING:
            raise RemoteProtocolError("not-open", f"consumer {number} is not open")
        if link.state is LinkState.CLOSED:
            return []
        if link.state is LinkState.LOCATING:
            if len(link.waiting) >= _WAITING_FRAMES_MAX:
                reason = f"consumer {number}: {_WAITING_FRAMES_MAX:,} frames wait, the most; wait for ConsumerOpened"
                raise RemoteProtocolError("too-many-frames", reason)
            self._waiting.add(size_bytes)
            link.waiting_bytes += size_bytes
            link.waiting.append(frame)
            return []
        return [ToBus(self.identity, link.destination, frame)]

    def _destination_of(self, consumer: int) -> int:
        link = self._consumers.get(consumer)
        if link is None or not link.destination:
            raise RemoteProtocolError("not-open", f"consumer {consumer} is not open")
        return link.destination

    def _close_consumer(self, number: int, frame: frames.ConsumerClose, size_bytes: int) -> list[Command]:
        commands = self._for_consumer(number, frame, size_bytes)
        link = self._consumers.get(number)
        if link is None:
            return []  # closed by the broker long ago
        if link.state is LinkState.CLOSED:
            del self._consumers[number], self._ended_links[False, number]
        elif link.state is not LinkState.LOCATING:
            link.state = LinkState.CLOSING
        return commands

    def _close_producer(self, number: int, frame: frames.ProducerClose) -> list[Command]:
        link = self._producers.pop(number, None)
        if link is None:
            if number <= self._forgotten[True]:
                return []
            raise RemoteProtocolError("not-open", f"producer {number} is not open")
        self._unconfirmed.forget(number)
        self._ended_links.pop((True, number), None)
        if link.state is LinkState.LOCATING:
            del self._locating[link.asked][True, number]
            if not self._locating[link.asked]:
                del self._locating[link.asked]
            self._waiting.remove(link.waiting_bytes)
        if link.state in (LinkState.LOCATING, LinkState.CLOSED) or link.is_desk:
            return []  # no destination knows it
        return [ToBus(self.identity, link.destination, frame)]

    # -- from the bus --------------------------------------------------------------------------------

    def bus_frame(self, frame: Frame, payload: bytes) -> list[Command]:
        if self._coordinator.is_concerned(frame):
            posted, answer = self._coordinator.frame(frame)
            if answer is None:
                return [*posted]
            self._committing = 0
            return [*posted, self._to_client(answer)]
        match frame:
            case frames.Deliver(number):
                link = self._consumers.get(number)
                if link is None or not link.was_opened or link.state is LinkState.CLOSED:
                    return []
                return [self._to_client(frame, payload)]
            case frames.Confirm(number, sequence):
                link = self._producers.get(number)
                if link is None or link.state is not LinkState.OPEN:
                    return []
                self._unconfirmed.confirmed(number, sequence)
                return [self._to_client(frame)]
            case frames.Block(number) | frames.Unblock(number) | frames.Refuse(number):
                link = self._producers.get(number)
                if link is None or link.state is not LinkState.OPEN:
                    return []
            case frames.Aborted(number, attachment=attachment):
                # It was sent over an earlier connection; sent again over this one, it may be committed. Or it was over
                # before the group that was to decide said so.
                if attachment != self._attachment or number != self._committing:
                    return []
                self._committing = 0
            case frames.Settled(number) | frames.Recovered(number):
                if number not in self._consumers:
                    return []
            case frames.WatchFound() | frames.WatchClosed():
                return [self._to_client(frame)] if self._watches.is_for_client(frame) else []
            case frames.Reply():
                return self._replied(frame, payload)
            case frames.Committed(number):
                self._committing = 0 if number == self._committing else self._committing
            case frames.Located():
                posted, refused = self._streams.located(frame) if not frame.existing else ([], [])
                return [*self._located(frame), *posted, *map(self._to_client, refused)]
            case frames.ProducerOpened() | frames.ConsumerOpened():
                return self._opened(frame)
            case frames.ProducerClosed() | frames.ConsumerClosed():
                return self._closed(frame)
        if isinstance(frame, FROM_BUS) and not self._streams.bus_frame(frame):
            return []
        return [self._to_client(frame, payload)]

    def _link_of(self, frame: _Answer) -> tuple[dict[int, Link], int]:
        if isinstance(frame, frames.ProducerOpened | frames.ProducerClosed):
            return self._producers, frame.producer
        return self._consumers, frame.consumer

    def _opened(self, frame: frames.ProducerOpened | frames.ConsumerOpened) -> list[Command]:
        links, number = self._link_of(frame)
        link = links.get(number)
        if link is None or frame.attachment != self._attachment:
            return []
        if link.state is LinkState.CLOSED:  # by an answer to an earlier opening: nobody would ever use it
            close = frames.ProducerClose(number) if links is self._producers else frames.ConsumerClose(number)
            return [ToBus(self.identity, link.destination, close)]
        link.was_opened = True
        if link.state is LinkState.OPENING:
            link.state = LinkState.OPEN
        return [self._to_client(frame)]

    def _closed(self, frame: frames.ProducerClosed | frames.ConsumerClosed) -> list[Command]:
        links, number = self._link_of(frame)
        link = links.get(number)
        if link is None or link.state in (LinkState.LOCATING, LinkState.CLOSED):
            return []
        if link.state is LinkState.OPENING and not frame.code:
            return []  # a refusal has a code: this answers a close from before the session was resumed
        if links is self._producers:
            self._unconfirmed.forget(number)
        if link.state is LinkState.CLOSING:
            del links[number]
        else:
            link.state = LinkState.CLOSED
            self._remember_closed(links, number)
        return [self._to_client(frame)]

    def _remember_closed(self, links: dict[int, Link], number: int) -> None:
        self._ended_links[links is self._producers, number] = None
        if len(self._ended_links) > _CLOSED_MAX:
            is_producer, oldest = next(iter(self._ended_links))
            del self._ended_links[is_producer, oldest]
            del (self._producers if is_producer else self._consumers)[oldest]
            self._forgotten[is_producer] = max(self._forgotten[is_producer], oldest)

    def _located(self, frame: frames.Located) -> list[Command]:
        commands: list[Command] = []
        asked = (frame.name, frame.asked_kind, frame.existing)
        for (is_producer, number), link in self._locating.pop(asked, {}).items():
            self._waiting.remove(link.waiting_bytes)
            link.waiting_bytes = 0
            if frame.destination:
                link.state = LinkState.OPENING
                link.destination = frame.destination
                commands += [ToBus(self.identity, frame.destination, f) for f in (link.open, *link.waiting)]
                if any(isinstance(f, frames.ConsumerClose) for f in link.waiting):
                    link.state = LinkState.CLOSING
                link.waiting.clear()
                if isinstance(link.open, frames.ConsumerOpen):
                    link.open = replace(link.open, held=[])  # the destination has it now, and it may be long
                if self._stalled and not is_producer:
                    commands.append(ToBus(self.identity, frame.destination, frames.Stall(True)))
            else:
                del (self._producers if is_producer else self._consumers)[number]
                commands.append(self._refused(link.open, frame.code, frame.reason))
        return commands

    def _to_client(self, frame: Frame, payload: bytes = b"") -> SendFrame:
        return SendFrame(self.connection, self.number, frame, payload)
