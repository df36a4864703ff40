"""What a bus counts, for metrics. Bytes are those of whole datagrams."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class BusCounters:
    data_datagrams: int = 0  # sent for the first time
    data_bytes: int = 0
    repair_datagrams: int = 0  # sent again, also for a sender that is gone
    repair_bytes: int = 0
    unheard_messages: int = 0  # sent while the channel had no receivers
    carried_bytes: int = 0  # over TCP, for want of multicast
    naks_sent: int = 0
    naks_received: int = 0
    received_datagrams: int = 0
    received_bytes: int = 0
    delivered_messages: int = 0
    delivered_bytes: int = 0
    evictions: int = 0  # receivers that we went on without
    streams_lost: int = 0  # senders that went on without us
    drops: dict[str, int] = field(default_factory=dict)  # datagrams received and not used, by reason

    def drop(self, reason: str) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + 1
