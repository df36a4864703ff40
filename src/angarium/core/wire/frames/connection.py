"""Frames of the connection itself, and of the sessions in it."""
from angarium.core.wire.frames.vocabulary import Frame


class Hello(Frame, frozen=True):
    """The client's first frame."""

    kind = 1
    version: int
    client: str  # free text for people: program and host
    product: str  # library and version
    identity: bytes = b""  # of the connection, as the Welcome of an earlier link told it; empty: a new one


class Welcome(Frame, frozen=True):
    """The client manager's answer: from here on, sessions may be opened."""

    kind = 2
    version: int
    node: str  # name of the node, for people
    incarnation: bytes  # a global id, fresh at each start of the node
    frame_bytes_max: int  # a longer frame closes the connection
    body_bytes_max: int  # of one message
    unconfirmed_bytes_max: int  # of published and unconfirmed batches in one session
    heartbeat_s: float  # the client manager sends something at least this often
    addresses: list[str] = []  # other client managers of the cluster
    identity: bytes = b""  # of the connection: the client repeats it when it connects again


class Ping(Frame, frozen=True):
    """Asks for a Pong with the same number."""

    kind = 3
    number: int


class Pong(Frame, frozen=True):
    kind = 4
    number: int


class Goodbye(Frame, frozen=True):
    """Sender will close the connection; nothing is wrong."""

    kind = 5
    reason: str


class Failure(Frame, frozen=True):
    """The peer broke the protocol; the connection is closed after this frame."""

    kind = 6
    code: str
    reason: str


class SessionOpen(Frame, frozen=True):
    kind = 10
    identity: bytes = b""  # empty: a new session; else the one to resume
    transacted: bool = False  # it sends and settles by Commit only
    turn: int = 0  # how often it was resumed before, and now: what a client manager says of an earlier turn is void


class SessionOpened(Frame, frozen=True):
    kind = 11
    identity: bytes


class SessionDetached(Frame, frozen=True):
    """The way to a message manager behind this session was lost: open the session again, as after a reconnection. What
    the client sends in it before its SessionOpen is dropped; nothing comes for it before SessionOpened."""

    kind = 14
    reason: str = ""  # for people


class SessionClose(Frame, frozen=True):
    """Ends producers and consumers; unsettled messages go back. The client has waited for its confirms before."""

    kind = 12


class SessionClosed(Frame, frozen=True):
    """Answer to SessionClose (code empty), or the broker's own decision (`session-taken`)."""

    kind = 13
    code: str = ""
    reason: str = ""
