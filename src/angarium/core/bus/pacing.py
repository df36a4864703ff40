"""How fast a stream may go, and how much of it repairs may be.

`Pace` is a bucket of bytes that fills at a rate. The rate follows what receivers lose: in each moment of
`pace_moment_s` in which the part p of what was sent was asked for again it sinks by p/2, in each one without it rises
by a step. So it settles about `2 * step / p`: random loss of 1 % hardly slows a stream, an overrun receiver does.

`RepairBudget` holds repairs to a part of the data plus a constant: so many bytes at once, so many for each second.
"""
from angarium.core.bus.events import BusSettings

_SECONDS_BURST = 0.002  # what may leave at once: what the rate gives in that time …
_BYTES_BURST_MIN = 1 << 16  # … and at least one segmented send


class Pace:
    def __init__(self, settings: BusSettings, now: float) -> None:
        self._settings = settings
        self.rate = float(settings.pace_bytes_per_s_first)
        self._tokens = float(_BYTES_BURST_MIN)
        self._filled_at = now
        self._moment_at = now
        self._sent = 0  # datagrams of this moment
        self._lost = 0

    def allowance(self, now: float) -> int:
        """Bytes that may be sent now."""
        elapsed = now - self._filled_at
        if elapsed > 0:
            burst = max(_BYTES_BURST_MIN, self.rate * _SECONDS_BURST)
            self._tokens = min(burst, self._tokens + elapsed * self.rate)
            self._filled_at = now
        return int(self._tokens)

    def spend(self, size_bytes: int, datagrams: int, now: float) -> None:
        self._tokens -= size_bytes
        self._sent += datagrams
        self._adapt(now)

    def lost(self, datagrams: int) -> None:
        self._lost += datagrams

    def ready_at(self, size_bytes: int) -> float:
        """When that much is allowed."""
        return _ready_at(self._filled_at, size_bytes - self._tokens, self.rate)

    def _adapt(self, now: float) -> None:
        settings = self._settings
        moments = (now - self._moment_at) / settings.pace_moment_s
        if moments < 1.0:
            return
        if self._lost:
            part = min(1.0, self._lost / max(1, self._sent))
            self.rate = max(settings.pace_bytes_per_s_min, self.rate * (1.0 - part / 2))
        else:
            # An idle stream has learnt nothing: it gets one step, not one for each moment that passed.
            self.rate = min(settings.pace_bytes_per_s_max, self.rate + settings.pace_bytes_per_s_step)
        self._moment_at = now
        self._sent = self._lost = 0


class RepairBudget:
    def __init__(self, settings: BusSettings, now: float) -> None:
        self._share = settings.repair_share_max
        self._burst = settings.repair_bytes_burst
        self._per_s = settings.repair_bytes_per_s
        self._tokens = float(self._burst)
        self._filled_at = now

    def earn(self, data_bytes: int) -> None:
        """Data was sent. What is not used is not saved up beyond the burst: it is for the losses of its own time."""
        self._tokens = min(self._burst, self._tokens + self._share * data_bytes)

    def allowance(self, now: float) -> int:
        if now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_s)
            self._filled_at = now
        return int(self._tokens)

    def spend(self, size_bytes: int) -> None:
        self._tokens -= size_bytes

    def ready_at(self, size_bytes: int) -> float:
        return _ready_at(self._filled_at, size_bytes - self._tokens, self._per_s)


def _ready_at(since: float, lacking: float, rate: float) -> float:
    # A byte more than is lacking: rounding must not make it due at a moment when it is not yet there.
    return since + (lacking + 1.0) / rate if lacking > 0 else since
