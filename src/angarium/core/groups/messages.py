"""What group services and the replicas of a group say to each other.

The leader of group services asks; a replica answers. A primary asks for changes; the answer is the new configuration
(`ReplicaGroupChanged`, told to every node in the order of decisions) or `ChangeRefused`. All of it goes through the
group services machine of the replica's own node: `ToReplica` out of it, `FromReplica` into it.

Anything may be lost, come late, twice or out of order. Whoever asks repeats: the leader until it is answered or gives
up, a primary until the epoch has changed or it is refused. Every message names group and epoch, so a late one finds
that the epoch has moved on, and does nothing.

What a replica promises:

    Fenced         before it answers, it has noted durably that it accepts nothing more of this epoch or a lower one:
                   no order, no synchronising. `position` is what its disk holds then. A replica that knows a higher
                   epoch does not answer. The primary, too, may be asked; it stops ordering and confirming.
    HandOverReady  (primary only) it orders nothing more in this epoch, durably; every in-sync replica has
                   acknowledged all up to `position`. It repeats this every second until it sees a higher epoch, since
                   the leader that asked may be gone: nobody else would know that the group stands still.
                   Until it has said so it has promised nothing: it still asks to be rid of backups that do not
                   acknowledge, and if it is not asked again for a second (that leader is gone) it goes on as before.
    ShrinkAsk      it goes on waiting for those it wants to be rid of until it has seen the configuration without them.
                   With nobody in `gone` it asks for a new epoch only: what it asked for under the old one is void.
    AdmitAsk       the replica has all that was confirmed, and from the moment of asking, until it sees a higher epoch,
                   nothing is confirmed that it has not acknowledged: the decision may hold long before the primary
                   hears of it, and a late copy of the question may still be decided after a refusal. A primary that
                   wants to go on without that replica asks for a new epoch (`ShrinkAsk`).

What group services promise: no two configurations of one group have the same epoch; a configuration's in-sync
replicas are those of the one before, less some, or with one that its primary admitted.
"""
import msgspec

from angarium.core.groups.configuration import GroupConfiguration, Position, Replica


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One of group services' messages; on the wire a MessagePack array that begins with the name of its type."""


class FenceAsk(Message, frozen=True):
    """Leader to every live in-sync replica: accept nothing more of this epoch, and say how far you are."""

    group: str
    epoch: int
    replica: Replica  # who is meant: another store on the same node has nothing to say


class Fenced(Message, frozen=True):
    group: str
    epoch: int  # as asked
    replica: Replica
    position: Position


class HandOverAsk(Message, frozen=True):
    """Leader to the primary: let everything be acknowledged, then stop; another will be primary."""

    group: str
    epoch: int
    primary: Replica


class HandOverReady(Message, frozen=True):
    group: str
    epoch: int
    replica: Replica
    position: Position


class ShrinkAsk(Message, frozen=True):
    """Primary: these backups do not acknowledge; go on without them, under a new epoch."""

    group: str
    epoch: int
    primary: Replica
    gone: tuple[Replica, ...]


class AdmitAsk(Message, frozen=True):
    """Primary: this replica has caught up."""

    group: str
    epoch: int
    primary: Replica
    replica: Replica


class ChangeRefused(Message, frozen=True):
    """To a primary: what it asked for was not done. `stale-epoch`: a newer configuration is on its way to it."""

    group: str
    epoch: int  # as asked
    code: str
    reason: str
    current: GroupConfiguration | None  # None: no such group


ToReplicaMessage = FenceAsk | HandOverAsk | ChangeRefused
FromReplicaMessage = Fenced | HandOverReady | ShrinkAsk | AdmitAsk
