"""The measured systems by name: ours first, then the peers; brokers of one process, and clusters with three copies."""
from benchmarks.systems.contract import System
from benchmarks.systems.jetstream import JetStream, JetStreamReplicated
from benchmarks.systems.ours import Ours, OursReplicated
from benchmarks.systems.rabbitmq import RabbitQuorum
from benchmarks.systems.redis_streams import RedisStreams

_SINGLE: tuple[System, ...] = (Ours(), JetStream(), RedisStreams())
_REPLICATED: tuple[System, ...] = (OursReplicated(), JetStreamReplicated(), RabbitQuorum())
SINGLE = {system.name: system for system in _SINGLE}
REPLICATED = {system.name: system for system in _REPLICATED}
SYSTEMS = SINGLE | REPLICATED
OURS = (Ours.name, OursReplicated.name)
