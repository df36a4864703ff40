"""A TCP link between two nodes, from the first byte on: who is there, proven; then sealed records.

Both sides send a greeting at once, unsealed:

     0  4s  "ANGL"
     4  u8  version
     5  u8  length of the name
     6  u16 port for unicast datagrams
     8  u64 cluster
    16  16s incarnation
    32  32s challenge: drawn for this connection
    64  name of the node, UTF-8

The keys, one for each direction, come from the cluster's secret and both greetings, those of the side that connected
first. So whoever seals a record has the secret and has seen our challenge: that proves the peer, and that nothing was
recorded earlier. The first record of each side is empty; until it has come, the peer is nobody.

A record: u32 length of what follows, then the sealed body, the length as associated data, and the number of the record
in its direction as nonce. The body: u16 service, u16 zero, u32 length of the message, message, payload (the rest).

The first violation raises RemoteProtocolError; the session is then finished.
"""
import struct
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from angarium.core.bus.datagram import TAG_BYTES
from angarium.core.bus.events import Part
from angarium.core.bus.seal import derive
from angarium.core.errors import LocalProtocolError, RemoteProtocolError

LINK_VERSION = 1
CHALLENGE_BYTES = 32
NAME_BYTES_MAX = 255
_GREETING = struct.Struct("<4sBBHQ16s32s")
_LENGTH = struct.Struct("<I")
_BODY = struct.Struct("<HHI")
_NONCE = struct.Struct("<IQ")
_MAGIC = b"ANGL"
_FRAME_BYTES = _BODY.size + TAG_BYTES


class Greeting(NamedTuple):
    name: str
    incarnation: bytes
    port: int


class Record(NamedTuple):
    service: int
    message: bytes
    payload: bytes


class LinkIdentity(NamedTuple):
    """What a node says of itself on every link."""

    secret: bytes
    cluster: int
    name: str
    incarnation: bytes
    port: int  # for unicast datagrams
    sealed: bool = True  # False only to measure what sealing costs: both sides must agree


class LinkSession:
    """One end of one connection. `challenge`: 32 bytes that nobody can foresee."""

    def __init__(self, identity: LinkIdentity, *, challenge: bytes, dialer: bool, record_bytes_max: int) -> None:
        name = identity.name.encode()
        if len(name) > NAME_BYTES_MAX or len(challenge) != CHALLENGE_BYTES:
            reason = f"node name of {len(name)} bytes, challenge of {len(challenge)}"
            raise LocalProtocolError(f"{reason}: at most {NAME_BYTES_MAX} and exactly {CHALLENGE_BYTES}")
        self._identity = identity
        self._dialer = dialer
        self._record_bytes_max = record_bytes_max
        self.greeting = _GREETING.pack(
            _MAGIC, LINK_VERSION, len(name), identity.port, identity.cluster, identity.incarnation, challenge
        ) + name  # fmt: skip
        self.peer: Greeting | None = None  # as it says; proven once `is_proven`
        self.is_proven = False
        self._input = bytearray()
        self._seal: AESGCM | None = None
        self._open: AESGCM | None = None
        self._sealed = 0
        self._opened = 0

    # -- what arrives --------------------------------------------------------------------------------------

    def feed(self, data: Part) -> list[Record]:
        """Records that it completes. The first one proves the peer, and is not handed out."""
        self._input += data
        if self.peer is None and not self._greet():
            return []
        records: list[Record] = []
        at, end = 0, len(self._input)
        with memoryview(self._input) as view:
            while end - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, at)
                limit = self._record_bytes_max if self.is_proven else _FRAME_BYTES
                if length > limit:
                    raise RemoteProtocolError("record-too-long", f"record of {length:,} bytes: {limit:,} are allowed")
                stop = at + _LENGTH.size + length
                if stop > end:
                    break
                with view[at : at + _LENGTH.size] as head, view[at + _LENGTH.size : stop] as body:
                    record = self._record(body, head)
                at = stop
                if self.is_proven:
                    records.append(record)
                self.is_proven = True
        del self._input[:at]
        return records

    def _record(self, sealed: memoryview, head: memoryview) -> Record:
        if self._open is None:
            body = bytes(sealed[:-TAG_BYTES])
        else:
            try:
                body = self._open.decrypt(_NONCE.pack(0, self._opened), sealed, head)
            except InvalidTag:
                raise RemoteProtocolError("link-forged", self._why_forged()) from None
        self._opened += 1
        if len(body) < _BODY.size:
            raise RemoteProtocolError("bad-record", f"record of {len(body)} bytes")
        service, zero, message_bytes = _BODY.unpack_from(body)
        payload_at = _BODY.size + message_bytes
        if zero or payload_at > len(body):
            raise RemoteProtocolError("bad-record", f"message of {message_bytes:,} bytes in a record of {len(body):,}")
        return Record(service, body[_BODY.size : payload_at], body[payload_at:])

    def _why_forged(self) -> str:
        if self.is_proven or self.peer is None:
            return "a record was changed on its way"
        return f"it calls itself {self.peer.name!r} and has another secret: compare cluster.secret here and there"

    def _greet(self) -> bool:
        """Whether the peer's greeting is complete."""
        if _MAGIC[: len(self._input)] != self._input[: len(_MAGIC)]:
            raise RemoteProtocolError("not-a-node", "the peer does not speak the protocol of nodes")
        if len(self._input) < _GREETING.size:
            return False
        _, version, name_bytes, port, cluster, incarnation, _ = _GREETING.unpack_from(self._input)
        if version != LINK_VERSION:
            raise RemoteProtocolError("bad-link-version", f"link version {version}: this node speaks {LINK_VERSION}")
        if cluster != self._identity.cluster:
            raise RemoteProtocolError("other-cluster", "it belongs to another cluster: compare cluster.name")
        size = _GREETING.size + name_bytes
        if len(self._input) < size:
            return False
        try:
            name = bytes(self._input[_GREETING.size : size]).decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("not-a-node", "the peer's name is no text") from None
        self._derive(bytes(self._input[:size]))
        del self._input[:size]
        self.peer = Greeting(name, incarnation, port)
        return True

    def _derive(self, theirs: bytes) -> None:
        if theirs == self.greeting:
            raise RemoteProtocolError("link-to-itself", "the peer sends back what it is sent")
        if not self._identity.sealed:
            return
        first, second = (self.greeting, theirs) if self._dialer else (theirs, self.greeting)
        salt = sha256(first + second).digest()
        secret = self._identity.secret
        keys = [AESGCM(derive(secret, b"link " + way, salt)) for way in (b"from dialer", b"to dialer")]
        self._seal, self._open = keys if self._dialer else keys[::-1]

    # -- what leaves ---------------------------------------------------------------------------------------

    def proof(self) -> bytes:
        """The first record; to be sent once `peer` is known."""
        return self.seal(0, b"", b"")

    def seal(self, service: int, message: Part, payload: Part) -> bytes:
        if self.peer is None:
            raise LocalProtocolError("a record before the peer's greeting")
        length = _FRAME_BYTES + len(message) + len(payload)
        if length > self._record_bytes_max:
            raise LocalProtocolError(f"record of {length:,} bytes exceeds record_bytes_max {self._record_bytes_max:,}")
        head = _LENGTH.pack(length)
        body = b"".join((_BODY.pack(service, 0, len(message)), message, payload))
        number = self._sealed
        self._sealed += 1
        if self._seal is None:
            return head + body + bytes(TAG_BYTES)
        return head + self._seal.encrypt(_NONCE.pack(0, number), body, head)
