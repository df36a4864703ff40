"""What goes into and comes out of the client's machine (`core.client.connection`).

Numbers of sessions, producers, consumers and requests are chosen by the caller, ascending, never used twice.

The driver's duties:
- `Connect`: try to reach that address; answer with `Connected` or `Disconnected`.
- `SendBytes`: write the buffers, in order.
- `CloseTransport`: drop the transport or the attempt to connect. Nothing more is reported of it, not even
  `Disconnected`, and `Connect` may follow.
- Everything else is a notification for the application.
- After `ConnectionFailed` or `ConnectionClosed` the machine takes no more events.

Those that come with every batch are `msgspec.Struct`: a frozen dataclass takes five times as long to make.

This module is the registry. They are spoken of by its name, `events.Publish`; the modules beside it, which only it
imports, divide them by subject. Those of streams are in `core.client.stream_events`.
"""
from angarium.core.client.events.connection import (
    CloseConnection,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    ConnectionReady,
    OpenConnection,
    Request,
    RequestAnswered,
    RequestLost,
)
from angarium.core.client.events.consuming import (
    CloseConsumer,
    CloseWatch,
    ConsumerEnded,
    ConsumerReady,
    MessagesArrived,
    MessagesDropped,
    OpenConsumer,
    OpenWatch,
    PositionsLost,
    Recover,
    Recovered,
    SetPrefetch,
    Settle,
    SettlementsLost,
    WatchEnded,
    WatchFound,
)
from angarium.core.client.events.producing import (
    Blocked,
    CloseProducer,
    Confirmed,
    OpenProducer,
    ProducerEnded,
    ProducerReady,
    Publish,
    Refused,
    Unblocked,
)
from angarium.core.client.events.sessions import (
    Aborted,
    CloseSession,
    Commit,
    Committed,
    OpenSession,
    SessionEnded,
    SessionReady,
    Sync,
    Synced,
    WithdrawCommit,
)
from angarium.core.client.events.transport import (
    CloseTransport,
    Connect,
    Connected,
    Disconnected,
    FramesReceived,
    InputViolated,
    SendBytes,
    Tick,
    WritingPaused,
    WritingResumed,
)
from angarium.core.client.stream_events import StreamNotice, StreamRequest

Event = (
    Connected | Disconnected | FramesReceived | InputViolated | WritingPaused | WritingResumed | Tick
    | OpenConnection | CloseConnection | OpenSession | CloseSession | Sync | OpenProducer | Publish | CloseProducer
    | OpenConsumer | SetPrefetch | Settle | Recover | Commit | WithdrawCommit | CloseConsumer | Request
    | OpenWatch | CloseWatch
    | StreamRequest
)  # fmt: skip

Command = (
    Connect | SendBytes | CloseTransport
    | ConnectionReady | ConnectionLost | ConnectionFailed | ConnectionClosed
    | SessionReady | SessionEnded | Synced
    | ProducerReady | Confirmed | Refused | ProducerEnded | Blocked | Unblocked
    | ConsumerReady | MessagesArrived | MessagesDropped | PositionsLost | SettlementsLost | Recovered | ConsumerEnded
    | Committed | Aborted
    | RequestAnswered | RequestLost
    | WatchFound | WatchEnded
    | StreamNotice
)  # fmt: skip
