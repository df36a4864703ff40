"""Where to connect next, and when.

Attempts go round the configured addresses and those that brokers have named. Between attempts the delay doubles from
`delay_first_s` to `delay_max_s`, each time multiplied by a random factor between 0.5 and 1.5, so that the clients of a
broker that died do not come back in step. A connection that lasted `STABLE_AFTER_S` starts the doubling afresh.

A search with an end shares the time that is left among the addresses that it has not tried yet: one that accepts and
stays silent does not keep us from the next.
"""
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from angarium.core.errors import LocalProtocolError
from angarium.core.wire.frames import PORT_DEFAULT

ADDRESSES_MAX = 64
STABLE_AFTER_S = 1.0
ATTEMPT_S_MIN = 0.1  # however little of a search's time is left
_SCHEME = "angarium://"
_TONGUES = {
    b"HTTP/": "HTTP", b"SSH-": "SSH", b"\x15\x03": "TLS", b"\x16\x03": "TLS", b"AMQP": "AMQP", b"INFO {": "NATS",
}  # fmt: skip


class Chance(Protocol):
    """`random.Random`, or anything that draws from [0, 1)."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    delay_first_s: float = 0.05  # short: most losses are a broker's restart
    # Times 1.5 at most, it has to stay below the grace time (2 s) for which the broker keeps what a session holds.
    delay_max_s: float = 1.0
    attempt_timeout_s: float = 5.0  # one attempt: transport and handshake
    give_up_after_s: float | None = None  # without a connection for so long, fail for good; None: never
    # Until the first connection: no attempt but the first at each address begins later. 0: each is tried once.
    tries_s_max: float = math.inf


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """`angarium://host:port`, `host:port`, `host`, `[v6]:port` or `[v6]`."""
    rest = text.strip().removeprefix(_SCHEME).rstrip("/")
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        port, bad = tail.removeprefix(":"), not bracket or bool(tail and not tail.startswith(":"))
    else:
        host, _, port = rest.partition(":")
        bad = "/" in rest or "@" in rest
    if bad or not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        remedy = "write angarium://host:port, host:port or host"
        if rest.count(":") > 1 and "/" not in rest:
            remedy = "write an IPv6 address in brackets, [::1]:4560 or [::1]"
        raise LocalProtocolError(f"address {text!r} is not understood: {remedy}")
    return Address(host, int(port) if port else PORT_DEFAULT)


class Route:
    """The addresses in turn, and the back-off between them."""

    def __init__(self, addresses: Sequence[Address], policy: ReconnectPolicy, chance: Chance) -> None:
        if not 0 < len(addresses) <= ADDRESSES_MAX:
            raise LocalProtocolError(f"{len(addresses)} addresses: give 1 to {ADDRESSES_MAX}")
        self._addresses = list(dict.fromkeys(addresses))
        self._policy = policy
        self._chance = chance
        self._at = 0
        self._failures = 0
        self._reasons: dict[Address, str] = {}  # why the present search has not found a broker there
        self._foreign: set[Address] = set()  # where something else than a broker answered

    def __str__(self) -> str:
        """The addresses, and what came of them in the present search."""
        return ", ".join(
            f"{address} ({self._reasons[address]})" if address in self._reasons else str(address)
            for address in self._addresses
        )

    @property
    def is_tried(self) -> bool:
        """The present search has tried each address."""
        return len(self._reasons) == len(self._addresses)

    @property
    def is_foreign(self) -> bool:
        """At no address there is a broker."""
        return len(self._foreign) == len(self._addresses)

    def attempt_s(self, left_s: float | None) -> float:
        """How long the next attempt may take, with so much left of the search; None: it has no end."""
        if left_s is None:
            return self._policy.attempt_timeout_s
        untried = max(1, len(self._addresses) - len(self._reasons))
        return max(ATTEMPT_S_MIN, min(self._policy.attempt_timeout_s, left_s / untried))

    def current(self) -> Address:
        return self._addresses[self._at]

    def learn(self, texts: Iterable[str]) -> None:
        """Other brokers of the cluster, as `Welcome` names them; what is malformed or too many is left out."""
        for text in texts:
            try:
                address = parse_address(text)
            except LocalProtocolError:
                continue
            if address not in self._addresses and len(self._addresses) < ADDRESSES_MAX:
                self._addresses.append(address)

    def note(self, reason: str) -> None:
        """Why there is no connection with the current address."""
        self._reasons[self.current()] = reason

    def note_foreign(self, start: bytes) -> str:
        """What answers at the current address is no broker; the reason, with what its first bytes tell."""
        tongue = next((f": it speaks {name}" for prefix, name in _TONGUES.items() if start.startswith(prefix)), "")
        reason = f"not an Angarium broker{tongue}"
        self._foreign.add(self.current())
        self.note(reason)
        return reason

    def failed(self, reason: str) -> float:
        """The attempt came to nothing: go on to the next address, in so many seconds."""
        self.note(reason)
        self._at = (self._at + 1) % len(self._addresses)
        return self._delay_s()

    def lost(self, reason: str, *, lasted_s: float, going: bool) -> float:
        """A connection ended: the same address again, unless it did not last or that broker said it is `going`."""
        self._reasons = {self.current(): reason}
        self._foreign.clear()
        if lasted_s >= STABLE_AFTER_S:
            self._failures = 0
        if going or lasted_s < STABLE_AFTER_S:
            self._at = (self._at + 1) % len(self._addresses)
        return self._delay_s()

    def _delay_s(self) -> float:
        policy = self._policy
        delay_s = min(policy.delay_max_s, policy.delay_first_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return delay_s * (0.5 + self._chance.random())
