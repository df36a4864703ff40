"""Very large messages in a whole cluster: senders and receivers that know each stream by its hash, while primaries die,
copies go and come, and the queues are moved from group to group with all that they hold.

In the end every stream that was sent has arrived as it was sent, and no file is left in any group.
"""
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import msgspec

from angarium.core.destination.events import ToSession
from angarium.core.storage import Table
from angarium.core.stream.events import StreamSettings
from angarium.core.stream.table import StreamRecord
from angarium.core.wire.frames import MoveBlock
from angarium.node.cluster.stores import table_records
from angarium.node.config import NodeConfig
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.faults import Participant
from angarium.sim.messages import Violation
from angarium.sim.streaming import StreamReceiver, StreamSender
from angarium.sim.world import WorldSettings, draw_settings

QUEUES = ("files", "films", "scans")  # wherever their names' slots are
_STREAMS = 14  # of each sender
_LATE_S_MAX = 4.0  # receivers come, when something is there to be moved
_KEEP_S = 8.0
_record_decoder = msgspec.msgpack.Decoder(StreamRecord)
_BY_NAME_CHANCE = 0.3
_FULL_COUNTS = (0, 1, 3, 6, 12, 20)  # more than are copied at a time
_PAUSE_S_MAX = 0.15  # so that many are half sent, and half read, when something happens


class ClusterStreamsWorld(ClusterWorld):
    spared = ("clock-set",)  # nothing here depends on the hour

    def __init__(
        self, seed: int, settings: WorldSettings | None = None, *, shape: Shape | None = None, is_traced: bool = False
    ) -> None:
        settings = replace(settings or draw_settings(seed), stream_keep_s=_KEEP_S)
        super().__init__(seed, settings, shape=shape, is_traced=is_traced)
        self._senders: list[StreamSender] = []
        self._receivers: list[StreamReceiver] = []

    def _configuration(self, name: str) -> NodeConfig:
        stream = StreamSettings(sync_fragments=2, unfinished_keep_s=self.settings.stream_keep_s)
        return replace(super()._configuration(name), stream=stream)

    def from_manager(self, command: ToSession, token: int) -> None:
        self.ledger.tally["fragments moved"] += isinstance(command.frame, MoveBlock)
        super().from_manager(command, token)

    def _look(self) -> None:
        """What a primary's store claims to hold is on its disk, whatever was deleted there, and when."""
        super()._look()
        for node in self.nodes():
            for group, host in node.replicas.items():
                disk = self.machines[node.name].disks[group]
                held = table_records(disk.store, Table.STREAM) if host.manager is not None else {}
                for record in map(_record_decoder.decode, held.values()):
                    if disk.stream_files.durable_blocks(record.identity) < record.fragments:
                        what = f"{node.name}, group {group}: {record.identity.hex()} of {record.fragments} fragments"
                        raise Violation("a store has the content that its messages hold", what)

    # -- the people of this world ------------------------------------------------------------------------

    def _settle_in(self) -> None:
        chance = self.chance("population")
        for queue in QUEUES:
            self._add_sender(queue, _STREAMS)
            self.clock.after(chance.random() * _LATE_S_MAX, partial(self._receiver_comes, queue))
        self._add_receiver(chance.choice(QUEUES))

    def _name(self, what: str) -> str:
        self._clients += 1
        return f"{what}-{self._clients}"

    def _add_sender(self, queue: str, streams: int) -> None:
        name = self._name("sender")
        sender = StreamSender(self.client(name), self.chance(f"of {name}"), queue, streams=streams)
        sender.full_counts, sender.pause_s_max = _FULL_COUNTS, _PAUSE_S_MAX
        self._senders.append(sender)
        self.applications.append(sender)

    def _add_receiver(self, queue: str) -> StreamReceiver:
        name = self._name("receiver")
        receiver = StreamReceiver(self.client(name), self.chance(f"of {name}"), queue)
        receiver.by_name_chance = _BY_NAME_CHANCE
        self._receivers.append(receiver)
        self.applications.append(receiver)
        return receiver

    def _receiver_comes(self, queue: str) -> None:
        self._add_receiver(queue)

    def replace(self, application: Participant) -> None:
        if isinstance(application, StreamSender):
            self._add_sender(application.destination, application.messages_left)
            application.messages_left = 0
        elif isinstance(application, StreamReceiver):
            self._add_receiver(application.destination)

    def _add_drainer(self) -> None:
        for queue in QUEUES:
            self._add_receiver(queue).calm_down()

    # -- the end -----------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Whoever is alive has published what he has sent; of the dead some may not have arrived."""
        sent = {digest for sender in self._senders for digest in sender.sent}
        owed = {digest for sender in self._senders if sender.client.is_alive for digest in sender.sent}
        received = {digest for receiver in self._receivers for digest in receiver.received}
        if any(not receiver.client.is_alive for receiver in self._receivers):
            owed = set()  # what one of them had settled nobody knows any more; the ledger knows of all messages
        if owed - received or received - sent:
            raise Violation("streams arrive as sent", f"{len(owed - received)} lost, {len(received - sent)} invented")
        self.ledger.tally["streams"] += len(received)
        self.ledger.tally["streams resumed"] += sum(sender.resumed for sender in self._senders)
        self.run_for(_KEEP_S)  # what was given up half way is kept for that long
        super().leave()

    def _left(self) -> Iterator[str]:
        yield from super()._left()
        for node in self.nodes():
            for group, host in node.replicas.items():
                files = self.machines[node.name].disks[group].stream_files.blocks
                if files and node.name in node.configurations[group].members:
                    yield f"{node.name}: {len(files)} files of streams in group {group}"
                if host.manager is not None and len(host.manager.moves.arrivals.files):
                    yield f"{node.name}: files are being copied to group {group}"
