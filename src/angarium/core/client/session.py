"""One session: its producers and consumers, from opening through reconnections to its end.

    OPENING --SessionOpened--> OPEN --disconnected, SessionDetached--> OPENING ...
       └────────── CloseSession: both go on until all is confirmed and durable, then SessionClose --> ended

A closing session takes no more messages and no more publishing, and still resumes after a reconnection: the
application is owed its confirms. A session that the broker has detached is resumed on the same connection, exactly as
on another one. Frames for a producer or consumer that has ended here may still be on their way and
are ignored; numbers that never existed are violations.
"""
from angarium.core.client import events, stream_events
from angarium.core.client.consumer import ConsumerWindow, check_prefetch
from angarium.core.client.outlet import Outlet
from angarium.core.client.producer import ProducerWindow, UnconfirmedBytes
from angarium.core.client.settlements import Barrier
from angarium.core.client.stream_events import StreamRequest
from angarium.core.client.streams import SessionStreams, StreamFrame
from angarium.core.client.transaction import TransactionWindow
from angarium.core.client.watches import SessionWatches
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire import frames

PRODUCERS_MAX = 1_000
CONSUMERS_MAX = 1_000
SYNCS_MAX = 1_000


class SessionWindow:
    def __init__(self, number: int, *, transacted: bool = False) -> None:
        self.number = number
        self._transaction = TransactionWindow(number) if transacted else None
        self.identity = b""
        self.closes_at: float | None = None  # a closing session gives up then
        self.is_ended = False
        self._turn = 0  # how often it was resumed
        self._is_asked = False  # SessionOpen was sent on the present connection
        self._is_open = False  # ... and answered
        self._is_close_sent = False
        self._producers: dict[int, ProducerWindow] = {}
        self._consumers: dict[int, ConsumerWindow] = {}
        self._producer_last = 0  # highest number ever
        self._consumer_last = 0
        self._place_last = 0
        self._unconfirmed = UnconfirmedBytes()
        self._barriers: list[Barrier] = []
        self._streams = SessionStreams(number)
        self._watches = SessionWatches(number)

    # -- from our side ---------------------------------------------------------------------------

    def open(self, outlet: Outlet) -> None:
        self._is_asked = True
        self._turn += bool(self.identity)
        outlet.send(self.number, frames.SessionOpen(self.identity, self._transaction is not None, self._turn))

    def disconnected(self, outlet: Outlet) -> None:
        self._is_asked = self._is_open = self._is_close_sent = False
        self._streams.disconnected()
        if self._transaction is not None:
            self._transaction.disconnected()
        for producer in self._producers.values():
            producer.disconnected()
        for number, consumer in list(self._consumers.items()):
            consumer.disconnected()
            if consumer.is_close_wanted:
                self._end_consumer_if_clean(number, consumer, outlet)
        self._end_if_drained(outlet)

    def close(self, at: float, outlet: Outlet) -> None:
        if self.closes_at is not None:
            raise LocalProtocolError(f"session {self.number} is closing already")
        self.closes_at = at
        for consumer in self._consumers.values():
            consumer.stop(outlet)
        self._end_if_drained(outlet)
        self._close_if_drained(outlet)

    def give_up(self, outlet: Outlet) -> None:
        """The time to close is over: say what is left."""
        unconfirmed = sum(producer.unconfirmed_count() for producer in self._producers.values())
        unanswered = sum(not consumer.is_clean for consumer in self._consumers.values())
        link = "connected" if self._is_open else "not connected"
        reason = (
            f"session {self.number} did not close in time ({link}): {unconfirmed:,} "
            f"{'message is' if unconfirmed == 1 else 'messages are'} not confirmed, the settlements of "
            f"{unanswered} {'consumer' if unanswered == 1 else 'consumers'} not answered"
            f"{', nor the commit' if self._transaction is not None and not self._transaction.is_idle else ''}; "
            "they may have been stored or not"
        )
        if self._is_open and not self._is_close_sent:
            outlet.send(self.number, frames.SessionClose())
        self._end("close-timeout", reason, outlet)

    def open_producer(self, event: events.OpenProducer, outlet: Outlet) -> None:
        self._check_taking()
        if event.producer <= self._producer_last:
            raise LocalProtocolError(f"session {self.number}: producer number {event.producer} was used before")
        if len(self._producers) >= PRODUCERS_MAX:
            raise LocalProtocolError(f"session {self.number}: more than {PRODUCERS_MAX:,} producers; close idle ones")
        self._producer_last = event.producer
        producer = ProducerWindow(
            self.number, event.producer, event.destination, event.destination_kind, self._unconfirmed,
            stage=(event.query, event.batch),
        )  # fmt: skip
        self._producers[event.producer] = producer
        self._add(producer, outlet)

    def publish(self, event: events.Publish, outlet: Outlet) -> None:
        self._check_taking()
        self._check_transacted("Publish", False)
        self._our_producer(event.producer).publish(event.messages, outlet)
        if self._unconfirmed.doomed:
            self._end_doomed(outlet)

    def close_producer(self, event: events.CloseProducer, outlet: Outlet) -> None:
        producer = self._our_producer(event.producer)
        if not producer.is_idle:
            raise LocalProtocolError(f"session {self.number}: producer {event.producer} has unconfirmed messages")
        del self._producers[event.producer]
        if self._is_open:
            outlet.send(self.number, frames.ProducerClose(event.producer))

    def open_consumer(self, event: events.OpenConsumer, outlet: Outlet) -> None:
        self._check_taking()
        check_prefetch(event.prefetch)
        if event.consumer <= self._consumer_last:
            raise LocalProtocolError(f"session {self.number}: consumer number {event.consumer} was used before")
        if len(self._consumers) >= CONSUMERS_MAX:
            raise LocalProtocolError(f"session {self.number}: more than {CONSUMERS_MAX:,} consumers; close some")
        self._consumer_last = event.consumer
        consumer = self._consumers[event.consumer] = ConsumerWindow(event)
        self._add(consumer, outlet)

    def _add(self, link: ProducerWindow | ConsumerWindow, outlet: Outlet) -> None:
        self._place_last += 1
        link.place = self._place_last
        if self._is_open:
            link.open(outlet)

    def commit(self, event: events.Commit | events.WithdrawCommit, outlet: Outlet) -> None:
        transaction = self._check_transacted(type(event).__name__, True)
        assert transaction is not None
        if isinstance(event, events.WithdrawCommit):
            transaction.withdraw(outlet)
            self._close_if_drained(outlet)
            return
        self._check_taking()
        publishes = [(self._our_producer(number), list(parts)) for number, parts in event.publishes]
        settles = [(self._our_consumer(number), list(ranges)) for number, ranges in event.settles]
        transaction.commit(publishes, settles, outlet)

    def recover(self, event: events.Recover, outlet: Outlet) -> None:
        self._our_consumer(event.consumer).recover(event.unseen, outlet)

    def settle(self, event: events.Settle, outlet: Outlet) -> None:
        if event.settled or event.rejected or event.released:
            self._check_transacted("Settle", False)
        self._our_consumer(event.consumer).settle(event, outlet)

    def set_prefetch(self, event: events.SetPrefetch, outlet: Outlet) -> None:
        self._our_consumer(event.consumer).set_prefetch(event.prefetch, outlet)

    def close_consumer(self, event: events.CloseConsumer, outlet: Outlet) -> None:
        consumer = self._our_consumer(event.consumer)
        consumer.close(event.unsubscribe, outlet)
        if not self._is_open:
            self._end_consumer_if_clean(event.consumer, consumer, outlet)

    def _end_consumer_if_clean(self, number: int, consumer: ConsumerWindow, outlet: Outlet) -> None:
        """Without a connection, and nothing owed: what it holds goes back by itself when it does not resume."""
        if consumer.is_clean and not consumer.unsubscribes:
            del self._consumers[number]
            consumer.ended("", "", outlet)
            self._streams.consumer_ended(number, outlet)
            outlet.tell(events.ConsumerEnded(self.number, number, "", ""))

    def sync(self, event: events.Sync, outlet: Outlet) -> None:
        self._barriers = [barrier for barrier in self._barriers if barrier.remaining]
        if len(self._barriers) >= SYNCS_MAX:
            raise LocalProtocolError(f"session {self.number}: more than {SYNCS_MAX:,} syncs wait; await some")
        barrier = Barrier(self.number, event.token)
        self._barriers.append(barrier)
        for consumer in self._consumers.values():
            consumer.sync(barrier)
        if barrier.remaining == 0:
            outlet.tell(events.Synced(self.number, event.token))

    def pump(self, outlet: Outlet) -> None:
        """The link takes more."""
        for producer in self._producers.values():
            producer.pump(outlet)
        self._unconfirmed.feed_starved(outlet)
        self._end_doomed(outlet)
        self._streams.pump()

    def watch_request(self, event: events.OpenWatch | events.CloseWatch, outlet: Outlet) -> None:
        if isinstance(event, events.OpenWatch):
            self._check_taking()
        self._watches.request(event, outlet, is_open=self._is_open)

    def stream_request(self, event: StreamRequest, outlet: Outlet) -> None:
        if isinstance(event, stream_events.OpenStream | stream_events.OpenReader):
            self._check_taking()
        consumer = self._consumers.get(event.consumer) if isinstance(event, stream_events.OpenReader) else None
        is_consuming = consumer is not None and consumer.is_open
        self._streams.request(event, outlet, is_open=self._is_open, is_consuming=is_consuming)
        if isinstance(event, stream_events.OpenReader) and event.consumer >= 0 and consumer is None:
            self._streams.consumer_ended(event.consumer, outlet)  # it was closed before: nobody answers for it

    def _our_producer(self, number: int) -> ProducerWindow:
        try:
            return self._producers[number]
        except KeyError:
            raise LocalProtocolError(f"session {self.number}: producer {number} is not open") from None

    def _our_consumer(self, number: int) -> ConsumerWindow:
        try:
            return self._consumers[number]
        except KeyError:
            raise LocalProtocolError(f"session {self.number}: consumer {number} is not open") from None

    def _check_taking(self) -> None:
        if self.closes_at is not None:
            raise LocalProtocolError(f"session {self.number} is closing; open another one")

    def _check_transacted(self, what: str, wanted: bool) -> TransactionWindow | None:
        if (self._transaction is not None) is not wanted:
            kind = "transacted" if self._transaction is not None else "not transacted"
            raise LocalProtocolError(f"session {self.number} is {kind}: it has no {what}")
        return self._transaction

    # -- from the broker -------------------------------------------------------------------------

    def receive(self, frame: frames.Frame, payload: bytes, outlet: Outlet) -> None:
        if self._is_open and isinstance(frame, _CONSUMER_FRAMES):
            self._to_consumer(frame, payload, outlet)
        elif self._is_open and isinstance(frame, _PRODUCER_FRAMES):
            self._to_producer(frame, outlet)
        elif isinstance(frame, frames.SessionOpened):
            self._on_opened(frame, outlet)
        elif isinstance(frame, frames.SessionClosed):
            self._on_closed(frame, outlet)
        elif not self._is_open:
            raise RemoteProtocolError(
                "unexpected-frame", f"session {self.number}: {type(frame).__name__} before SessionOpened"
            )
        elif isinstance(frame, frames.SessionDetached):
            self._on_detached(outlet)
            return
        elif isinstance(frame, frames.WatchFound | frames.WatchClosed):
            self._watches.receive(frame, outlet)
        elif isinstance(frame, StreamFrame):
            self._streams.receive(frame, payload, outlet)
        elif isinstance(frame, frames.Committed | frames.Aborted) and self._transaction is not None:
            if isinstance(frame, frames.Committed):
                self._transaction.on_committed(frame, outlet)
            else:
                self._transaction.on_aborted(frame, outlet)
        else:
            raise RemoteProtocolError(
                "unexpected-frame", f"session {self.number}: {type(frame).__name__} is not for clients"
            )
        if self._transaction is not None:
            self._transaction.pump(outlet)
        self._close_if_drained(outlet)

    def _on_opened(self, frame: frames.SessionOpened, outlet: Outlet) -> None:
        if not self._is_asked or self._is_open:
            raise RemoteProtocolError("unexpected-frame", f"session {self.number}: opened, and did not ask to be")
        self._is_open = True
        self.identity = frame.identity
        outlet.tell(events.SessionReady(self.number, frame.identity))
        # The first that names a destination says what it is, and a topic that is subscribed to may be sent to: so the
        # broker hears of them as the application opened them.
        links: list[ProducerWindow | ConsumerWindow] = [*self._producers.values(), *self._consumers.values()]
        for link in sorted(links, key=lambda link: link.place):
            link.open(outlet)
        self._streams.session_opened()
        self._watches.session_opened(outlet)

    def _on_detached(self, outlet: Outlet) -> None:
        self.disconnected(outlet)
        if not self.is_ended:
            self.open(outlet)

    def _on_closed(self, frame: frames.SessionClosed, outlet: Outlet) -> None:
        if not frame.code and not self._is_close_sent:
            raise RemoteProtocolError("unexpected-frame", f"session {self.number}: closed, and did not ask to be")
        self._end(frame.code, frame.reason, outlet)

    def _to_producer(self, frame: "_ProducerFrame", outlet: Outlet) -> None:
        producer = self._producers.get(frame.producer)
        if producer is None:
            if frame.producer > self._producer_last:
                raise RemoteProtocolError(
                    "unknown-producer",
                    f"session {self.number}: {type(frame).__name__} for producer {frame.producer}, which never was",
                )
            return
        match frame:
            case frames.Confirm():
                producer.on_confirm(frame, outlet)
            case frames.ProducerOpened():
                producer.on_opened(frame, outlet)
            case frames.Refuse():
                producer.on_refuse(frame, outlet)
            case frames.Block():
                producer.on_block(frame, outlet)
            case frames.Unblock():
                producer.on_unblock(outlet)
            case frames.ProducerClosed():
                del self._producers[frame.producer]
                producer.release(frame.code, frame.reason)
                outlet.tell(events.ProducerEnded(self.number, frame.producer, frame.code, frame.reason))
        if self._unconfirmed.starved:
            self._unconfirmed.feed_starved(outlet)
        if self._unconfirmed.doomed:
            self._end_doomed(outlet)

    def _end_doomed(self, outlet: Outlet) -> None:
        for number, producer in list(self._unconfirmed.doomed.items()):
            if producer.has_in_flight:  # those get their confirms first
                continue
            del self._producers[number]
            producer.release("message-too-long", producer.doom)
            outlet.send(self.number, frames.ProducerClose(number))
            outlet.tell(events.ProducerEnded(self.number, number, "message-too-long", producer.doom))

    def _to_consumer(self, frame: "_ConsumerFrame", payload: bytes, outlet: Outlet) -> None:
        consumer = self._consumers.get(frame.consumer)
        if consumer is None:
            if frame.consumer > self._consumer_last:
                raise RemoteProtocolError(
                    "unknown-consumer",
                    f"session {self.number}: {type(frame).__name__} for consumer {frame.consumer}, which never was",
                )
            return
        if self._is_close_sent:  # nothing may follow that, whatever is still on its way
            return
        match frame:
            case frames.Deliver():
                consumer.on_deliver(frame, payload, outlet)
            case frames.Settled():
                consumer.on_settled(frame, outlet)
            case frames.Recovered():
                consumer.on_recovered(frame, outlet)
            case frames.Dropped():
                outlet.tell(events.MessagesDropped(self.number, frame.consumer, frame.count))
            case frames.ConsumerOpened():
                consumer.on_opened(frame, outlet)
                self._streams.consumer_opened(frame.consumer)
            case frames.ConsumerClosed():
                del self._consumers[frame.consumer]
                consumer.ended(frame.code, frame.reason, outlet)
                self._streams.consumer_ended(frame.consumer, outlet)
                outlet.tell(events.ConsumerEnded(self.number, frame.consumer, frame.code, frame.reason))

    # -- the end ---------------------------------------------------------------------------------

    def _is_drained(self) -> bool:
        return (
            all(producer.is_idle for producer in self._producers.values())
            and all(consumer.is_clean for consumer in self._consumers.values())
            and (self._transaction is None or self._transaction.is_idle)
        )

    def _end_if_drained(self, outlet: Outlet) -> None:
        """A closing session that owes nothing does not wait for a connection: what it holds goes back by itself."""
        if self.closes_at is not None and not self._is_open and not self._is_asked and self._is_drained():
            self._end("", "", outlet)

    def _close_if_drained(self, outlet: Outlet) -> None:
        if self.closes_at is None or self._is_close_sent or self.is_ended or not self._is_open:
            return
        if self._is_drained():
            self._is_close_sent = True
            for consumer in self._consumers.values():
                consumer.send_close(outlet)
            outlet.send(self.number, frames.SessionClose())
            self._streams.ended(outlet)  # nothing more may be said in the session, and the broker closes them with it

    def _end(self, code: str, reason: str, outlet: Outlet) -> None:
        self.is_ended = True
        self._streams.ended(outlet)
        for consumer in self._consumers.values():
            consumer.ended(code, reason, outlet)
        outlet.tell(events.SessionEnded(self.number, code, reason))


_ProducerFrame = (
    frames.ProducerOpened | frames.Confirm | frames.Refuse | frames.Block | frames.Unblock | frames.ProducerClosed
)
_ConsumerFrame = (
    frames.ConsumerOpened | frames.Deliver | frames.Settled | frames.Recovered | frames.Dropped | frames.ConsumerClosed
)
_PRODUCER_FRAMES = (
    frames.Confirm, frames.ProducerOpened, frames.Refuse, frames.Block, frames.Unblock, frames.ProducerClosed,
)  # fmt: skip
_CONSUMER_FRAMES = (
    frames.Deliver, frames.Settled, frames.ConsumerOpened, frames.ConsumerClosed, frames.Recovered, frames.Dropped,
)  # fmt: skip
