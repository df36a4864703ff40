"""Every frame of the protocol, as a type.

A frame is a fixed header, a MessagePack array (`meta`: the fields below, in order) and, for a few, a payload.
`wire.codec` turns them into bytes and back. The same frames travel between client and client manager and, inside
an envelope that names session and destination, on the bus. New fields may only be appended, with a default: a
peer ignores those that it does not know.

`session` numbers are the client's; 0 is the connection itself. `producer` and `consumer` numbers are the
client's too, unique within their session.

This module is the registry. Frames are spoken of by its name, `frames.Publish`; the modules beside it divide them by
subject, and only it imports those.
"""
from angarium.core.wire.frames.administration import Reply, Request
from angarium.core.wire.frames.bus import (
    ClientEnded,
    ClientHere,
    Locate,
    LocateBlocked,
    Located,
    SessionEnded,
    Stall,
    TransactionCommit,
)
from angarium.core.wire.frames.connection import (
    Failure,
    Goodbye,
    Hello,
    Ping,
    Pong,
    SessionClose,
    SessionClosed,
    SessionDetached,
    SessionOpen,
    SessionOpened,
    Welcome,
)
from angarium.core.wire.frames.consuming import (
    ConsumerClose,
    ConsumerClosed,
    ConsumerOpen,
    ConsumerOpened,
    Credit,
    Deliver,
    Dropped,
    Recover,
    Recovered,
    Settle,
    Settled,
)
from angarium.core.wire.frames.moving import MoveBlock, MoveRefused, MoveRows, MoveTaken, MoveWants
from angarium.core.wire.frames.producing import (
    Block,
    Confirm,
    ProducerClose,
    ProducerClosed,
    ProducerOpen,
    ProducerOpened,
    Publish,
    Refuse,
    Unblock,
)
from angarium.core.wire.frames.streams import (
    StreamClose,
    StreamClosed,
    StreamCredit,
    StreamData,
    StreamFragment,
    StreamOpen,
    StreamOpened,
    StreamRead,
    StreamReadEnd,
    StreamStored,
)
from angarium.core.wire.frames.transactions import (
    Aborted,
    Commit,
    CommitComplete,
    CommitFail,
    CommitFinal,
    CommitPrepare,
    CommitQuestion,
    CommitReady,
    CommitRollback,
    Committed,
)
from angarium.core.wire.frames.vocabulary import (
    LANE_BITS,
    PORT_DEFAULT,
    PROTOCOL_VERSION,
    RANGES_MAX,
    DestinationKind,
    Frame,
    Outcome,
    PatternSyntax,
    Start,
)
from angarium.core.wire.frames.watches import Watch, WatchClose, WatchClosed, WatchFound

FRAMES: dict[int, type[Frame]] = {
    frame.kind: frame
    for frame in (
        Hello, Welcome, Ping, Pong, Goodbye, Failure,
        SessionOpen, SessionOpened, SessionClose, SessionClosed, SessionDetached,
        ProducerOpen, ProducerOpened, Publish, Confirm, Refuse, Block, Unblock, ProducerClose, ProducerClosed,
        ConsumerOpen, ConsumerOpened, Credit, Deliver, Settle, Settled, ConsumerClose, ConsumerClosed,
        Recover, Recovered, Dropped,
        Request, Reply,
        TransactionCommit, Locate, Located, LocateBlocked, SessionEnded, Stall, ClientHere, ClientEnded,
        Commit, Committed, Aborted,
        CommitPrepare, CommitReady, CommitFail, CommitFinal, CommitComplete, CommitRollback, CommitQuestion,
        StreamOpen, StreamOpened, StreamFragment, StreamStored, StreamClose, StreamClosed,
        StreamRead, StreamData, StreamCredit, StreamReadEnd,
        Watch, WatchFound, WatchClose, WatchClosed,
        MoveRows, MoveTaken, MoveRefused, MoveWants, MoveBlock,
    )
}  # fmt: skip
