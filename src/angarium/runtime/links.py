"""TCP links to the other nodes: one for each pair, found again when lost, sealed.

A node dials the addresses that it is told, again and again with a back-off, and listens. Who is at the other end is
known from the handshake (`core/bus/link.py`), never from the address. A process that dies closes its connections, so
its neighbours know at once; one that vanishes without a word is missed after `silence_s_max`.

A link that is in use stays, for what is on its way is lost with it. Nobody proves himself to whom he has a link:

    dialled ──peer's greeting──> no link to it: our proof ──its proof──> proven, in use
                    └──> one is there: its proof first ──> still there: closed, and dialled again when that one is lost

So a proof says that its sender has no link. What it means to us is a matter of order. If the sender had taken our link
to it before it heard the greeting of the new connection (we had heard more than its proof there, and greeted later), it
has lost it, and we have not noticed: the new one counts. If not, both may have dialled at once: both sides see both
connections, and the one that the lower incarnation dialled stays.

Output is bounded: above `output_bytes_high` the caller is told that the link is blocked; what is sent past
`output_bytes_max` is refused.
"""
import asyncio
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from angarium.core.bus.link import CHALLENGE_BYTES, LinkIdentity, LinkSession, Record
from angarium.core.errors import ConfigError, RemoteProtocolError

HEARTBEAT_SERVICE = 0
_RECEIVE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class LinkSettings:
    # Longest record: the longest message of the bus, its payload and names.
    record_bytes_max: int = 16 << 20
    # Output waiting in one link at which its users are told to stop, and to go on; past max sending is refused.
    output_bytes_high: int = 4 << 20
    output_bytes_low: int = 1 << 20
    output_bytes_max: int = 64 << 20
    # Something is said at least this often; a neighbour that says nothing for so long is taken for lost.
    heartbeat_s: float = 0.5
    silence_s_max: float = 5.0
    # Whoever has not proven itself by then is disconnected.
    greeting_s_max: float = 3.0
    # Between attempts to connect: doubled each time in vain, reset by success.
    redial_s_min: float = 0.05
    redial_s_max: float = 2.0
    # Connections that have not proven themselves; past it new ones are closed.
    unproven_max: int = 256

    def __post_init__(self) -> None:
        if not self.output_bytes_low < self.output_bytes_high < self.output_bytes_max:
            raise ConfigError("links: output_bytes_low, output_bytes_high and output_bytes_max have to ascend")


@dataclass(frozen=True, slots=True)
class LinkUsers:
    """Whom to tell. All are called from the event loop."""

    record: Callable[[bytes, Record], None]  # by whom
    found: Callable[[bytes, str, str, int], None]  # incarnation, name, host, port for datagrams
    lost: Callable[[bytes, str], None]
    blocked: Callable[[bytes, bool], None]
    refused: Callable[[str], None]  # for people: a peer that is none


class LinkConnection(asyncio.BufferedProtocol):
    """One connection, proven or not yet."""

    def __init__(self, links: "Links", *, dialer: bool) -> None:
        self._links = links
        self.dialer = dialer
        challenge = links.bytes_by_chance(CHALLENGE_BYTES)
        limit = links.settings.record_bytes_max
        self._session = LinkSession(links.identity, challenge=challenge, dialer=dialer, record_bytes_max=limit)
        self._transport: asyncio.Transport | None = None
        self._output: list[bytes] = []  # of this turn of the loop
        self._output_bytes = 0
        self._is_announced = False  # our proof is sent
        self.greeted_at = 0  # when we greeted, and when it had more to say than its proof: as `Links.moment` counts
        self.used_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.incarnation = b""  # once it is proven
        self.gave_way_to = b""  # the node to which there was a link before this one
        self.name = ""
        self.host = ""
        self.reason = "the connection was closed"
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        settings = self._links.settings
        transport.set_write_buffer_limits(high=settings.output_bytes_high, low=settings.output_bytes_low)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.greeted_at = self._links.moment()
        transport.write(self._session.greeting)
        self._timer = asyncio.get_running_loop().call_later(settings.greeting_s_max, self.close, "no greeting in time")
        self._links.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._links.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        session, links = self._session, self._links
        self._heard_at = asyncio.get_running_loop().time()
        try:
            records = session.feed(links.receive_buffer[:nbytes])
        except RemoteProtocolError as error:
            links.users.refused(f"{self.host}: {error.reason} ({error.code})")
            self.close(error.reason)
            return
        if session.peer is not None and not self._is_announced and not self._announce(session.peer.incarnation):
            return
        if session.is_proven and not self.incarnation and not self._prove():
            return
        if records and self.used_at is None:
            self.used_at = links.moment()
        for record in records:
            if record.service != HEARTBEAT_SERVICE:
                links.users.record(self.incarnation, record)

    def _announce(self, incarnation: bytes) -> bool:
        """Prove ourselves, unless there is a link already; whether we did. Anybody can greet in another's name: only a
        proven peer lets us give way."""
        if not self.dialer or not self._links.is_reaching(incarnation):
            self._is_announced = True
            self._links.announced(self, incarnation)
            self._write(self._session.proof())
            return True
        if self._session.is_proven:
            self.gave_way_to = incarnation
            self.close("there is a link already")
        return False

    def _prove(self) -> bool:
        peer = self._session.peer
        assert peer is not None
        self.incarnation, self.name = peer.incarnation, peer.name
        if self._timer is not None:
            self._timer.cancel()
        if not self._links.proven(self, peer.port):
            return False
        self._beat(asyncio.get_running_loop().time())
        return True

    def _beat(self, due: float) -> None:
        settings, loop = self._links.settings, asyncio.get_running_loop()
        now = loop.time()
        if now - due > settings.heartbeat_s:
            self._heard_at = now  # it was we who were not there: accuse nobody
        if now - self._heard_at > settings.silence_s_max:
            self.close(f"nothing heard for {settings.silence_s_max:g} s")
            return
        self.send(HEARTBEAT_SERVICE, b"", b"")
        due = now + settings.heartbeat_s
        self._timer = loop.call_at(due, self._beat, due)

    def send(self, service: int, message: bytes, payload: bytes | memoryview) -> bool:
        """False: the link takes no more."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() + self._output_bytes > self._links.settings.output_bytes_max:
            return False
        self._write(self._session.seal(service, message, payload))
        return True

    def _write(self, data: bytes) -> None:
        if not self._output:
            asyncio.get_running_loop().call_soon(self.flush)
        self._output.append(data)
        self._output_bytes += len(data)

    def flush(self) -> None:
        output, self._output, self._output_bytes = self._output, [], 0
        if self._transport is not None and output and not self._transport.is_closing():
            self._transport.writelines(output)

    def pause_writing(self) -> None:
        if self.incarnation:
            self._links.users.blocked(self.incarnation, True)

    def resume_writing(self) -> None:
        if self.incarnation:
            self._links.users.blocked(self.incarnation, False)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.reason = str(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._links.disconnected(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self, reason: str) -> None:
        self.reason = reason
        self.flush()
        if self._transport is not None:
            self._transport.abort()


class Links:
    def __init__(
        self, settings: LinkSettings, identity: LinkIdentity, users: LinkUsers, *,
        bytes_by_chance: Callable[[int], bytes] = os.urandom, jitter: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.bytes_by_chance = bytes_by_chance
        self._jitter = jitter
        self.identity = identity
        self.users = users
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._proven: dict[bytes, LinkConnection] = {}
        self._unproven: dict[LinkConnection, None] = {}
        self._reaching: dict[bytes, LinkConnection] = {}  # dialled, and not proven since we proved ourselves there
        self._moment = 0
        self._wanted: set[tuple[str, int]] = set()  # addresses to be dialled
        self._dialling: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which the system chooses for 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: LinkConnection(self, dialer=False), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def dial(self, host: str, port: int) -> None:
        """Keep a connection to whoever is there, until `hang_up`."""
        self._wanted.add((host, port))
        if (host, port) not in self._dialling:
            self._dialling[host, port] = asyncio.get_running_loop().create_task(self._keep(host, port))

    def hang_up(self, host: str, port: int) -> None:
        """Dial no more; a connection that is there stays."""
        self._wanted.discard((host, port))

    async def _keep(self, host: str, port: int) -> None:
        loop, wait_s = asyncio.get_running_loop(), self.settings.redial_s_min
        while (host, port) in self._wanted:
            try:
                _, connection = await loop.create_connection(lambda: LinkConnection(self, dialer=True), host, port)
            except (OSError, ValueError):  # the resolver takes a name that no host can have for a wrong argument
                pass
            else:
                await asyncio.shield(connection.ended)
                if connection.incarnation or connection.gave_way_to in self._proven:
                    wait_s = self.settings.redial_s_min
                await self._while_linked(connection.incarnation or connection.gave_way_to)
            await asyncio.sleep(wait_s * (0.5 + self._jitter()))
            wait_s = min(wait_s * 2, self.settings.redial_s_max)
        del self._dialling[host, port]

    async def _while_linked(self, incarnation: bytes) -> None:
        """There is no need for a second."""
        while (other := self._proven.get(incarnation)) is not None:
            await asyncio.shield(other.ended)

    def send(self, node: bytes, service: int, message: bytes, payload: bytes | memoryview = b"") -> bool:
        """False: there is no link to that node, or it takes no more."""
        connection = self._proven.get(node)
        return connection is not None and connection.send(service, message, payload)

    def drop(self, node: bytes) -> None:
        connection = self._proven.get(node)
        if connection is not None:
            connection.close("what was sent did not fit")

    def is_linked(self, node: bytes) -> bool:
        return node in self._proven

    # -- from connections ----------------------------------------------------------------------------------

    def moment(self) -> int:
        """Counts what connections do: which came first, also of two things at the same time."""
        self._moment += 1
        return self._moment

    def is_reaching(self, incarnation: bytes) -> bool:
        """There is a link, or one that we have dialled is about to be."""
        return incarnation in self._proven or incarnation in self._reaching

    def announced(self, connection: LinkConnection, incarnation: bytes) -> None:
        if connection.dialer:
            self._reaching[incarnation] = connection

    def _reached(self, connection: LinkConnection) -> None:
        """It is proven, or gone."""
        self._unproven.pop(connection, None)
        if connection.dialer:
            self._reaching = {who: other for who, other in self._reaching.items() if other is not connection}

    def connected(self, connection: LinkConnection) -> None:
        if len(self._unproven) >= self.settings.unproven_max:
            connection.close("too many connections that have not proven themselves")
        else:
            self._unproven[connection] = None

    def proven(self, connection: LinkConnection, port: int) -> bool:
        """Whether it stays."""
        self._reached(connection)
        incarnation, me = connection.incarnation, self.identity.incarnation
        if incarnation == me:
            connection.incarnation = b""
            connection.close("a link to itself")
            return False
        other = self._proven.get(incarnation)
        if other is not None and self._stays(other, connection):
            connection.close("a second link between the same nodes")
            return False
        self._proven[incarnation] = connection
        if other is not None:
            other.close("it has connected anew")
            self.users.lost(incarnation, other.reason)  # what was on its way there may be lost
        self.users.found(incarnation, connection.name, connection.host, port)
        return True

    def _stays(self, link: LinkConnection, other: LinkConnection) -> bool:
        """Of two with a node that has just proven itself over the other one."""
        if link.used_at is not None and link.used_at < other.greeted_at:
            return False  # it had this one before it heard our greeting there: it has lost it
        return link.dialer != other.dialer and link.dialer == (self.identity.incarnation < link.incarnation)

    def disconnected(self, connection: LinkConnection) -> None:
        self._reached(connection)
        if self._proven.get(connection.incarnation) is connection:
            del self._proven[connection.incarnation]
            self.users.lost(connection.incarnation, connection.reason)

    async def close(self) -> None:
        for task in self._dialling.values():
            task.cancel()
        self._dialling.clear()
        if self._server is not None:
            self._server.close()
        for connection in [*self._proven.values(), *self._unproven]:
            connection.close("this node stops")
        await asyncio.sleep(0)
