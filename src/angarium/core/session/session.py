"""One session of a client, as its client manager sees it: a pure machine.

A session checks what its client sends, finds the destination behind each producer and consumer (`linking.py`), and
passes the frames on to the bus; what comes back from the bus goes to the client. It keeps no messages.
"""
from collections.abc import Sequence

from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GlobalIds, destination_id, group_of
from angarium.core.session.administration_desk import AdministrationDesk
from angarium.core.session.events import Command, SessionSettings, ToBus
from angarium.core.session.linking import Linking
from angarium.core.session.links import Link, LinkState, check_batch, check_resume
from angarium.core.session.requests import Requests
from angarium.core.session.stream_links import FROM_BUS, FROM_CLIENT, StreamLinks
from angarium.core.session.waiting import WaitingBytes
from angarium.core.session.watch_links import WatchLinks
from angarium.core.transaction.coordinator import Coordinator, divide
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Frame


class Session(Linking):
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
        super().__init__(connection, number, identity, client, settings, ids, waiting, desk)
        self.turn = 0  # how often it was resumed, as its client says
        self._has_spoken = False  # its client has sent something in it
        self._groups = groups  # all replica groups that there are
        self._streams = StreamLinks(identity, self._attachment, ids)
        self._coordinator = Coordinator(identity, self._attachment)
        self._watches = WatchLinks(self._attachment, watches_max=settings.watches_max)
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

    def misplaced(self, groups: dict[str, int], is_unsure: bool) -> str | None:
        """One of these destinations that this session has looked for elsewhere than in that group; `is_unsure`: or any
        that it is looking for."""
        for link in (*self._producers.values(), *self._consumers.values()):
            name, is_locating = link.open.destination, link.state is LinkState.LOCATING
            if link.state is LinkState.CLOSED or link.is_desk:
                continue
            if is_locating and (is_unsure or name in groups):
                return name
            if not is_locating and name in groups and group_of(link.destination) != groups[name]:
                return name
        return self._streams.misplaced(groups, is_unsure)

    def lose_request(self) -> list[Command]:
        """The message manager that was asked will not answer: tell the client so."""
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

    def _administer(self, number: int, batch: Batch) -> list[Command]:
        assert self._desk is not None
        refusals, commands = self._desk.taken(number, batch, client=self.client)
        confirm = frames.Confirm(number, batch.last_sequence)
        return [*map(self._to_client, refusals), self._to_client(confirm), *commands]

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
        named = len(frame.settles) + sum(len(ranges) for _, ranges in frame.settles)
        if named > frames.RANGES_MAX:
            reason = f"a transaction that names {named:,} consumers and ranges to settle; at most {frames.RANGES_MAX:,}"
            return [self._to_client(frames.Aborted(frame.number, "transaction-too-long", f"{reason}; commit sooner"))]
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

    # -- from the bus --------------------------------------------------------------------------------

    def bus_frame(self, frame: Frame, payload: bytes) -> list[Command]:
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
            case _ if self._coordinator.is_concerned(frame):
                posted, answer = self._coordinator.frame(frame)
                if answer is None:
                    return [*posted]
                self._committing = 0
                return [*posted, self._to_client(answer)]
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
            case frames.LocateBlocked():
                return self._locate_blocked(frame)
            case frames.ProducerOpened() | frames.ConsumerOpened():
                return self._opened(frame)
            case frames.ProducerClosed() | frames.ConsumerClosed():
                return self._closed(frame)
        if isinstance(frame, FROM_BUS) and not self._streams.bus_frame(frame):
            return []
        return [self._to_client(frame, payload)]
