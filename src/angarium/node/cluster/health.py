"""What is wrong with a cluster, in sentences: a pure function of what was decided and of who can be reached.

A node that was decided to be a member, or a voter, and cannot be reached is a fault whether the view still has it or
not: without a majority of the voters nobody is put out of the view, and nothing else is decided either.
"""
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from angarium.core.groups.configuration import GroupConfiguration


class Fault(StrEnum):
    NONE = ""
    COPIES_MISSING = "copies-missing"  # it works, and has less to lose than it should
    CONFIRMS_NOTHING = "confirms-nothing"  # too few copies are in sync
    NO_PRIMARY = "no-primary"
    NOT_FORMED = "not-formed"


@dataclass(frozen=True, slots=True)
class Voters:
    names: Sequence[str]
    here: Sequence[str]  # those of them that can be reached

    @property
    def has_majority(self) -> bool:
        return len(self.here) > len(self.names) // 2

    @property
    def away(self) -> list[str]:
        return [name for name in self.names if name not in self.here]

    @property
    def trouble(self) -> str:
        if self.has_majority:
            return ""
        needed = len(self.names) // 2 + 1
        return (
            f"no majority of the voters: {len(self.here)} of {len(self.names)} can be reached, {needed} have to be; "
            f"until then nothing is decided: no primary is replaced, no node comes in; start {listed(self.away)}"
        )


def voters_of(names: Iterable[str], here: Collection[str]) -> Voters:
    found = list(names)
    return Voters(found, [name for name in found if name in here])


@dataclass(frozen=True, slots=True)
class GroupHealth:
    fault: Fault
    text: str  # with the group's name; empty if there is no fault


def health_of(
    configuration: GroupConfiguration, here: Collection[str], voters: Voters, *, is_served: bool
) -> GroupHealth:
    """`here`: nodes that can be reached; `is_served`: its message manager runs."""
    group = f"replica group {configuration.group!r}"
    in_sync = [replica.node for replica in configuration.in_sync]
    alive = [name for name in in_sync if name in here]
    members = configuration.members
    if not configuration.is_formed:
        absent = [name for name in members if name not in here]
        waits = f"waits for {listed(absent)}; start {_them(absent)}" if absent else "is about to be"
        return GroupHealth(Fault.NOT_FORMED, f"{group} is not formed yet: it {waits}")
    if not alive:
        only = f"one of {listed(in_sync)}, which alone have" if len(in_sync) > 1 else f"{in_sync[0]}, which alone has"
        return GroupHealth(
            Fault.NO_PRIMARY, f"{group} has no primary: it waits for {only} all that was confirmed; start it"
        )
    if not is_served:
        why = f"one of {listed(alive)} is to take over" if voters.has_majority else f"there is {voters.trouble}"
        return GroupHealth(Fault.NO_PRIMARY, f"{group} has no primary: {why}")
    lacking = [name for name in members if name not in alive]
    away = [name for name in lacking if name not in here]
    behind = [name for name in lacking if name in here]
    parts = [f"start {listed(away)}"] if away else []
    parts += [f"{listed(behind)} {'is' if len(behind) == 1 else 'are'} catching up"] if behind else []
    count = f"{len(alive)} of {configuration.copies} copies {'is' if len(alive) == 1 else 'are'} in sync"
    if len(alive) < len(in_sync) and not voters.has_majority:
        lost = listed([name for name in in_sync if name not in here])
        text = f"{group} confirms nothing: it waits for {lost}, until a majority of the voters says that it need not"
        return GroupHealth(Fault.CONFIRMS_NOTHING, text)
    if len(alive) < configuration.min_copies:
        text = f"{group} confirms nothing: {count}, and {configuration.min_copies} have to be; {', '.join(parts)}"
        return GroupHealth(Fault.CONFIRMS_NOTHING, text)
    if lacking:
        return GroupHealth(Fault.COPIES_MISSING, f"{group}: {count}; {', '.join(parts)}")
    return GroupHealth(Fault.NONE, "")


def is_out_of_reach(
    configuration: GroupConfiguration, here: Collection[str], view: Collection[str], voters: Voters
) -> bool:
    """Others may be served by the group, and nobody through this node. With a majority of the voters in reach that is
    so if the primary is in the cluster, and not in reach; without, whatever is not in reach may have been replaced."""
    if configuration.primary is None:
        return False
    if voters.has_majority:
        return configuration.primary.node in view and configuration.primary.node not in here
    return not all(replica.node in here for replica in configuration.in_sync)


def listed(names: Sequence[str]) -> str:
    """`a1`, `a1 and a2`, `a1, a2 and a3`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "nobody"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
