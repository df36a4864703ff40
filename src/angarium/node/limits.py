"""Limits as they hold in this process: what the configuration asks for, cut to what journal and system can bear.

A frame that the journal cannot take as one group must not be accepted, and a connection without a descriptor cannot be.
What had to be lowered is told once, at the start; `status` shows what holds.
"""
import resource
from dataclasses import dataclass, replace

from angarium.core.session.events import SessionSettings

_GROUP_OVERHEAD_BYTES = 4_096
_OWN_DESCRIPTORS = 40  # the node's files, the event loop, the listener (some 25), and what is open for a moment


@dataclass(frozen=True, slots=True)
class Fitted:
    settings: SessionSettings
    lowered: list[str]  # for people: which limit, from what to what, and why


def fit(settings: SessionSettings, *, group_bytes_max: int, descriptors_max: int) -> Fitted:
    frame_bytes_max = min(settings.frame_bytes_max, group_bytes_max - _GROUP_OVERHEAD_BYTES)
    fitted = replace(
        settings,
        frame_bytes_max=frame_bytes_max,
        body_bytes_max=min(settings.body_bytes_max, frame_bytes_max // 2),
        connections_max=max(1, min(settings.connections_max, descriptors_max - _OWN_DESCRIPTORS)),
    )
    reasons = {
        "frame_bytes_max": f"a group of the journal takes {group_bytes_max:,} bytes; raise store.segment_bytes",
        "body_bytes_max": f"half of frame_bytes_max {frame_bytes_max:,}; raise that",
        "connections_max": f"this process may open {descriptors_max:,} files; raise that with ulimit -n",
    }
    lowered = [
        f"session.{name} {getattr(settings, name):,} is {getattr(fitted, name):,} here: {reason}"
        for name, reason in reasons.items()
        if getattr(fitted, name) < getattr(settings, name)
    ]
    return Fitted(fitted, lowered)


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
