"""The measured systems by name: ours first, then the peers."""
from benchmarks.systems.contract import System
from benchmarks.systems.jetstream import JetStream
from benchmarks.systems.ours import Ours
from benchmarks.systems.redis_streams import RedisStreams

_KNOWN: tuple[System, ...] = (Ours(), JetStream(), RedisStreams())
SYSTEMS = {system.name: system for system in _KNOWN}
