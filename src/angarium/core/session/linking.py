"""The producers and consumers of one session: how they are opened, located, used and closed.

    open request --> LOCATING --Located--> OPENING --Opened--> OPEN --Closed--> (gone)

What a client says of a consumer right after opening it waits until the destination is located. Frames that it sent
before it could know that the broker had refused or closed a producer or consumer are ignored. For that, the latest
`_CLOSED_MAX` of them are remembered; of older ones only the highest number, and every number up to it is taken for one
of them. Any other frame for a producer or consumer that is not open is the client's error. What is published is the
session's affair (`session.py`).
"""
from msgspec.structs import replace

from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import GlobalIds
from angarium.core.names import ADMINISTRATION, check_name
from angarium.core.session.administration_desk import AdministrationDesk
from angarium.core.session.events import Command, SendFrame, SessionSettings, ToBus
from angarium.core.session.links import Asked, Link, LinkState, check_producer, is_for_the_dead
from angarium.core.session.unconfirmed import Unconfirmed
from angarium.core.session.waiting import WaitingBytes
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame

_NUMBER_MAX = (1 << 32) - 1
_WAITING_FRAMES_MAX = 1_000  # of one consumer that is not located yet
_CLOSED_MAX = 100  # producers and consumers closed by the broker that a session remembers
_Answer = frames.ProducerOpened | frames.ConsumerOpened | frames.ProducerClosed | frames.ConsumerClosed


class Linking:
    def __init__(
        self,
        connection: int,
        number: int,
        identity: bytes,
        client: bytes,
        settings: SessionSettings,
        ids: GlobalIds,
        waiting: WaitingBytes,
        desk: AdministrationDesk | None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.identity = identity
        self.client = client  # the identity of the connection
        self.is_transacted = False  # it publishes and settles by Commit alone
        self.settings = settings
        self._ids = ids
        self._waiting = waiting  # of the whole connection
        self._desk = desk  # for what is sent to `_ADMIN`
        # After a resume, frames meant for the session's earlier connection may still come from the bus. Those of a
        # producer or consumer count only once it is open, and open it is by an answer that repeats this.
        self._attachment = ids.next()
        self._producers: dict[int, Link] = {}
        self._consumers: dict[int, Link] = {}
        self._locating: dict[Asked, dict[tuple[bool, int], Link]] = {}  # ... and then by (is a producer, number)
        # Closed by the broker, oldest first. Of producers and of consumers: the highest number that is forgotten.
        self._ended_links: dict[tuple[bool, int], None] = {}
        self._forgotten = {True: -1, False: -1}
        self._unconfirmed = Unconfirmed()
        self._stalled = False

    # -- opening ---------------------------------------------------------------------------------------

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
            return [self._refused(Link(frame), "stage-refused", reason)]
        if frame.destination == ADMINISTRATION:
            return self._open_administration(frame)
        return self._open(self._producers, frame.producer, frame, size_bytes)

    def _open_administration(self, frame: frames.ProducerOpen) -> list[Command]:
        """The client manager itself takes what is sent there: there is nobody to ask."""
        if self.is_transacted or self._desk is None:
            reason = f"{ADMINISTRATION!r} takes no part in transactions: use a session that is not transacted"
            return [self._refused(Link(frame), "reserved-name", reason)]
        self._ended_links.pop((True, frame.producer), None)
        self._producers[frame.producer] = Link(frame, LinkState.OPEN, is_desk=True)
        return [self._to_client(frames.ProducerOpened(frame.producer, frame.identity, frame.confirmed))]

    def _open(
        self, links: dict[int, Link], number: int, frame: frames.ProducerOpen | frames.ConsumerOpen, size_bytes: int
    ) -> list[Command]:
        try:
            check_name(frame.destination, reading=isinstance(frame, frames.ConsumerOpen) or is_for_the_dead(frame))
            if isinstance(frame, frames.ConsumerOpen) and frame.subscription:
                check_name(frame.subscription, what="subscription")
        except Rejected as refusal:
            return [self._refused(Link(frame), refusal.code, refusal.reason)]
        self._waiting.add(size_bytes)
        key = (links is self._producers, number)
        self._ended_links.pop(key, None)
        opening = replace(frame, attachment=self._attachment, client=self.client)
        if isinstance(opening, frames.ConsumerOpen):
            opening = replace(opening, transacted=self.is_transacted)
        link = links[number] = Link(opening, waiting_bytes=size_bytes)
        self._locating.setdefault(link.asked, {})[key] = link
        return [ToBus(self.identity, 0, frames.Locate(*link.asked))]

    def _refused(self, link: Link, code: str, reason: str) -> SendFrame:
        """The client may close it, or give credit, before it hears of that."""
        frame = link.open
        link.state = LinkState.CLOSED
        link.waiting.clear()
        if isinstance(frame, frames.ProducerOpen):
            self._producers[frame.producer] = link
            self._remember_closed(self._producers, frame.producer)
            return self._to_client(frames.ProducerClosed(frame.producer, code, reason))
        link.open = replace(frame, held=[])  # it may be long
        self._consumers[frame.consumer] = link
        self._remember_closed(self._consumers, frame.consumer)
        return self._to_client(frames.ConsumerClosed(frame.consumer, code, reason))

    def _located(self, frame: frames.Located) -> list[Command]:
        commands: list[Command] = []
        asked = (frame.name, frame.asked_kind, frame.existing)
        for (is_producer, _), link in self._locating.pop(asked, {}).items():
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
                commands.append(self._refused(link, frame.code, frame.reason))
        return commands

    def _locate_blocked(self, frame: frames.LocateBlocked) -> list[Command]:
        """What is sent there waits as if it were open."""
        return [
            self._to_client(frames.Block(number, frame.code, frame.reason))
            for is_producer, number in self._locating.get((frame.name, frame.asked_kind, False), {})
            if is_producer
        ]

    # -- use -------------------------------------------------------------------------------------------

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
        """Where it has its messages from; 0: it has none, or no longer."""
        link = self._consumers.get(consumer)
        return 0 if link is None else link.destination

    def _to_client(self, frame: Frame, payload: bytes = b"") -> SendFrame:
        return SendFrame(self.connection, self.number, frame, payload)

    # -- closing ---------------------------------------------------------------------------------------

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

    # -- what the destination answers ------------------------------------------------------------------

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
