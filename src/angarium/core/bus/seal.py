"""What keeps strangers out: every datagram is sealed with a key that only the cluster can derive.

One key for each sender incarnation and channel: HKDF-SHA256 of the cluster's secret. AES-256-GCM with the header as
associated data. The nonce is the datagram's class (0 data, 1 all else) and its sequence: a sequence is given to one
datagram only, for the life of an incarnation, and repairs are the sealed bytes themselves, so that no nonce ever
meets two contents. Whoever knows the secret can speak as anybody: it keeps out others, not members.
"""
import struct
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from angarium.core.bus.datagram import TAG_BYTES
from angarium.core.bus.events import Part
from angarium.core.errors import ConfigError

SECRET_BYTES_MIN = 16
DATA, CONTROL = 0, 1
_NONCE = struct.Struct("<IQ")
_KEY_INFO = struct.Struct("<QI16s")


class Box(Protocol):
    """Of one sender on one channel."""

    def seal(self, nonce_class: int, sequence: int, body: Part, header: bytes) -> bytes: ...

    def open(self, nonce_class: int, sequence: int, sealed: Part, header: bytes) -> bytes | None:
        """None: it was not sealed with this key, or not together with this header."""


class Boxes(Protocol):
    def box(self, incarnation: bytes, channel: int) -> Box: ...


class SealedBox:
    def __init__(self, key: bytes) -> None:
        cipher = AESGCM(key)
        self._encrypt = cipher.encrypt
        self._decrypt = cipher.decrypt

    def seal(self, nonce_class: int, sequence: int, body: Part, header: bytes) -> bytes:
        return self._encrypt(_NONCE.pack(nonce_class, sequence), body, header)

    def open(self, nonce_class: int, sequence: int, sealed: Part, header: bytes) -> bytes | None:
        try:
            return self._decrypt(_NONCE.pack(nonce_class, sequence), sealed, header)
        except InvalidTag:
            return None


class SealedBoxes:
    def __init__(self, secret: bytes, cluster: int) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigError(f"cluster secret of {len(secret)} bytes: it has to have at least {SECRET_BYTES_MIN}")
        self._secret = secret
        self._cluster = cluster

    def box(self, incarnation: bytes, channel: int) -> SealedBox:
        info = b"datagrams" + _KEY_INFO.pack(self._cluster, channel, incarnation)
        return SealedBox(derive(self._secret, info))


class OpenBox:
    """No protection at all: what sealing costs is measured against it, and long simulations use it."""

    def seal(self, nonce_class: int, sequence: int, body: Part, header: bytes) -> bytes:
        return bytes(body) + bytes(TAG_BYTES)

    def open(self, nonce_class: int, sequence: int, sealed: Part, header: bytes) -> bytes | None:
        return bytes(sealed[:-TAG_BYTES])


class OpenBoxes:
    def box(self, incarnation: bytes, channel: int) -> OpenBox:
        return OpenBox()


def derive(secret: bytes, info: bytes, salt: bytes = b"") -> bytes:
    """32 bytes of key for one purpose."""
    return HKDF(algorithm=SHA256(), length=32, salt=salt or None, info=b"angarium bus 1 " + info).derive(secret)
