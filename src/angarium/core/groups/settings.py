"""What can be set about group services: times, and a limit for everything that is kept."""
from dataclasses import dataclass, field

from angarium.core.errors import ConfigError
from angarium.core.groups.records import Limits


@dataclass(frozen=True, slots=True)
class GroupSettings:
    # -- times -------------------------------------------------------------------------------------
    # Between heartbeats of a node, and of a leader. Five fit into the time of suspicion: a lost one matters little.
    heartbeat_s: float = 0.2
    # A node that was not heard for so long is suspected.
    suspect_after_s: float = 1.0
    # How long a suspected node, and the voters that may still hear it, have to answer.
    verify_s: float = 0.3
    # Between the first node that is found gone and the decision, so that a failing rack is one view change.
    batch_s: float = 0.1
    # A voter that has not heard of a leader for this long, and up to twice that, stands for election. More than four
    # heartbeats; the sum of this and of the election is how long nothing can be decided.
    election_s: float = 0.9
    # Between two voters that stand for election because the leader's process is gone: enough for an election.
    succeed_s: float = 0.1
    # Between attempts of voters without a majority, and of nodes that find no voter: doubling from first to last.
    beacon_s_min: float = 0.3
    beacon_s_max: float = 2.0
    # An event that the driver delivers so much later than it was due means that our own loop stood still: what we did
    # not hear meanwhile is no evidence.
    lag_s: float = 0.4
    # How long replicas have to answer a fence; those that do not are left out.
    fence_wait_s: float = 2.0
    # Between repetitions of what the leader asks a replica.
    ask_again_s: float = 0.3
    # How long a primary may take to hand over before it is fenced.
    hand_over_s: float = 5.0
    # How long the first in-sync replica that comes back to a group without any waits for the others: after a power cut
    # all come within seconds, and each one left out would have to synchronise.
    return_wait_s: float = 3.0
    # Until an unanswered request is sent again, to whoever leads then.
    request_again_s: float = 1.0
    # A leadership transfer that takes longer is given up.
    transfer_s: float = 1.0
    # Replica groups that have to be formed before slots are dealt: those of the essential configuration.
    groups_wanted: tuple[str, ...] = ()
    # -- the log -----------------------------------------------------------------------------------
    # Decisions between two snapshots: bounds the log, and what a restart reads.
    log_entries_max: int = 1_000
    # Entries kept in memory behind a snapshot for those who are a little behind.
    log_tail_entries: int = 256
    # In one message, and sent ahead of what was acknowledged.
    append_entries_max: int = 64
    append_bytes_max: int = 256 << 10
    append_ahead_max: int = 256
    snapshot_part_bytes: int = 64 << 10
    # One decision; what is longer is refused.
    decision_bytes_max: int = 128 << 10
    # Undecided proposals at the leader; past it they are refused with `busy`, and asked again.
    proposals_max: int = 1_000
    # Unanswered requests of one node; past it the caller is refused.
    requests_max: int = 1_000
    # -- what is decided ---------------------------------------------------------------------------
    # Of the cluster that this node founds. Later ones are decided: all nodes must apply a decision alike.
    limits: Limits = field(default_factory=Limits)
    # Nodes that take the state from one voter; past it they are sent to another.
    subscribers_max: int = 1_000

    def __post_init__(self) -> None:
        if self.election_s < 2 * self.heartbeat_s:
            raise ConfigError(
                f"groups.election_s {self.election_s:g}: at least twice groups.heartbeat_s {self.heartbeat_s:g}, "
                "or one lost heartbeat unseats a leader"
            )
        if self.suspect_after_s < 2 * self.heartbeat_s:
            raise ConfigError(f"groups.suspect_after_s {self.suspect_after_s:g}: at least twice groups.heartbeat_s")
        if self.beacon_s_max < self.beacon_s_min:
            raise ConfigError(f"groups.beacon_s_max {self.beacon_s_max:g} is below beacon_s_min {self.beacon_s_min:g}")
