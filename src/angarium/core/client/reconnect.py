"""Where to connect next, and when.

Attempts go round the configured addresses and those that brokers have named. Between attempts the delay doubles from
`delay_first_s` to `delay_max_s`, each time multiplied by a random factor between 0.5 and 1.5, so that the clients of a
broker that died do not come back in step. A connection that lasted `STABLE_AFTER_S` starts the doubling afresh.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from angarium.core.errors import LocalProtocolError

PORT_DEFAULT = 4560
ADDRESSES_MAX = 64
STABLE_AFTER_S = 1.0
_SCHEME = "angarium://"


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
        raise LocalProtocolError(f"address {text!r} is not understood: write angarium://host:port, host:port or host")
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

    def __str__(self) -> str:
        return ", ".join(map(str, self._addresses))

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

    def failed(self) -> float:
        """The attempt came to nothing: go on to the next address, in so many seconds."""
        self._at = (self._at + 1) % len(self._addresses)
        return self._delay_s()

    def lost(self, *, lasted_s: float, going: bool) -> float:
        """A connection ended: the same address again, unless it did not last or that broker said it is `going`."""
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
