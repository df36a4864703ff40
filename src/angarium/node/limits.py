"""Limits as they hold in this process: what the configuration asks for, cut to what journal and system can bear.

A frame must not be accepted if the journal cannot take as one group what is stored because of it, and a connection
without a descriptor cannot be. What had to be lowered is told once, at the start; `status` shows what holds.
"""
import resource
from dataclasses import dataclass, replace

from angarium.core.destination.events import DestinationSettings
from angarium.core.session.events import SessionSettings

_GROUP_OVERHEAD_BYTES = 4_096
_OWN_DESCRIPTORS = 40  # the node's files, the event loop, the listener (some 25), and what is open for a moment


@dataclass(frozen=True, slots=True)
class Fitted:
    session: SessionSettings
    destination: DestinationSettings
    lowered: list[str]  # for people: which limit, from what to what, and why


def fit(
    session: SessionSettings, destination: DestinationSettings, *, group_bytes_max: int, descriptors_max: int
) -> Fitted:
    at_once_bytes = group_bytes_max - _GROUP_OVERHEAD_BYTES
    frame_bytes_max = min(session.frame_bytes_max, at_once_bytes)
    limits = replace(
        session,
        frame_bytes_max=frame_bytes_max,
        body_bytes_max=min(session.body_bytes_max, frame_bytes_max // 2),
        connections_max=max(1, min(session.connections_max, descriptors_max - _OWN_DESCRIPTORS)),
    )
    write_bytes_max = min(destination.write_bytes_max, at_once_bytes)
    of_journal = f"a group of the journal takes {group_bytes_max:,} bytes; raise store.segment_bytes"
    of_frame = f"half of frame_bytes_max {frame_bytes_max:,}; raise that"
    of_system = f"this process may open {descriptors_max:,} files; raise that with ulimit -n"
    lowered = [
        f"{name} {asked:,} is {here:,} here: {reason}"
        for name, asked, here, reason in (
            ("session.frame_bytes_max", session.frame_bytes_max, limits.frame_bytes_max, of_journal),
            ("session.body_bytes_max", session.body_bytes_max, limits.body_bytes_max, of_frame),
            ("session.connections_max", session.connections_max, limits.connections_max, of_system),
            ("destination.write_bytes_max", destination.write_bytes_max, write_bytes_max, of_journal),
        )
        if here < asked
    ]
    return Fitted(limits, replace(destination, write_bytes_max=write_bytes_max), lowered)


def fit_in_cluster(session: SessionSettings, destination: DestinationSettings, *, descriptors_max: int) -> Fitted:
    """Of a client manager, which has no journal: that a frame leaves room for its envelope is always so, and nothing to
    tell of."""
    fitted = fit(session, destination, group_bytes_max=session.frame_bytes_max, descriptors_max=descriptors_max)
    told = [text for text in fitted.lowered if text.startswith("session.connections_max")]
    return Fitted(fitted.session, destination, told)


def raise_descriptors_max(connections_max: int) -> int:
    """Ask the system for as many descriptors as the connections need; returns how many this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _OWN_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems allow less than they say
        return soft
    return wanted
