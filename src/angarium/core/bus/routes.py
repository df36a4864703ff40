"""By which way datagrams reach a node: multicast or unicast where that is known to work, else over its TCP link."""
from collections.abc import Iterable

from angarium.core.bus.counters import BusCounters
from angarium.core.bus.events import Carry, Command, Multicast, Unicast

UNICAST = -1  # in place of a link: the unicast port


class Routes:
    def __init__(self, counters: BusCounters, links: tuple[int, ...]) -> None:
        self._counters = counters
        self._links = links  # without any, everything is carried
        self._cut: set[tuple[bytes, int]] = set()  # (node, link) that do not work: bounded by whoever tests them

    def change(self, node: bytes, link: int, reached: bool) -> None:
        if reached:
            self._cut.discard((node, link))
        else:
            self._cut.add((node, link))

    def is_reached(self, node: bytes, link: int) -> bool:
        return (node, link) not in self._cut

    def to_all(self, link: int, receivers: Iterable[bytes], datagrams: list[bytes]) -> list[Command]:
        if link not in self._links:
            return [self._carry(receiver, datagrams) for receiver in receivers]
        if not self._cut:
            return [Multicast(link, datagrams)]
        commands: list[Command] = []
        reached = False
        for receiver in receivers:
            if (receiver, link) in self._cut:
                commands.append(self._carry(receiver, datagrams))
            else:
                reached = True
        return [Multicast(link, datagrams), *commands] if reached else commands

    def to_one(self, node: bytes, datagrams: list[bytes]) -> Command:
        if (node, UNICAST) in self._cut:
            return self._carry(node, datagrams)
        return Unicast(node, datagrams)

    def _carry(self, node: bytes, datagrams: list[bytes]) -> Carry:
        self._counters.carried_bytes += sum(map(len, datagrams))
        return Carry(node, datagrams)
