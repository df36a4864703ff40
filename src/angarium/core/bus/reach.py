"""Which neighbours hear us on which link: found out by asking, never assumed.

Every `probe_s` a node sends a probe to all on each of its links, and one to the unicast port of each neighbour. Each
tells the others over their TCP links on what it hears them. Where a neighbour does not hear us, datagrams are carried
over TCP instead, as the same bytes, until it does: routers that drop multicast, switches that lost track of a group, an
interface that is gone and comes back all look alike from here.
"""
from angarium.core.bus.datagram import HEADER_BYTES, Header, Kind, Probe, decode_body
from angarium.core.bus.events import BusSettings, Command, Multicast, SendReport, Unicast
from angarium.core.bus.routes import UNICAST, Routes
from angarium.core.bus.seal import CONTROL, Box, Boxes
from angarium.core.bus.voice import Seen, Voice

PROBE_CHANNEL = 0xFFFFFFFF  # no channel of anybody's


class _Neighbour:
    def __init__(self, box: Box) -> None:
        self.box = box
        self.seen = Seen()
        self.heard: dict[int, float] = {}  # link: when last
        self.reported: tuple[int, ...] = ()


class Reach:
    def __init__(
        self, settings: BusSettings, voice: Voice, boxes: Boxes, routes: Routes, links: tuple[int, ...]
    ) -> None:
        self._settings = settings
        self._voice = voice
        self._boxes = boxes
        self._routes = routes
        self._links = links
        self._neighbours: dict[bytes, _Neighbour] = {}  # as many as there are TCP links
        self._probe_at: float | None = None

    def found(self, node: bytes, now: float) -> list[Command]:
        self._neighbours[node] = _Neighbour(self._boxes.box(node, PROBE_CHANNEL))
        for link in (*self._links, UNICAST):
            self._routes.change(node, link, False)
        return self.probe(now)

    def lost(self, node: bytes) -> None:
        if self._neighbours.pop(node, None) is None:
            return
        for link in (*self._links, UNICAST):
            self._routes.change(node, link, True)  # there is nothing to carry it any more: whatever gets through
        if not self._neighbours:
            self._probe_at = None

    def reported(self, node: bytes, links: tuple[int, ...]) -> None:
        if node in self._neighbours:
            for link in (*self._links, UNICAST):
                self._routes.change(node, link, link in links)

    def hear(self, header: Header, datagram: bytes, now: float) -> tuple[str, list[Command]]:
        """A probe: what for it was dropped, or nothing; and what follows."""
        neighbour = self._neighbours.get(header.incarnation)
        if neighbour is None or header.kind != Kind.PROBE:
            return "stranger", []
        if not neighbour.seen.is_new(header.sequence):
            return "replayed", []
        plain = neighbour.box.open(CONTROL, header.sequence, datagram[HEADER_BYTES:], datagram[:HEADER_BYTES])
        probe = None if plain is None else decode_body(header.kind, plain)
        if not isinstance(probe, Probe):
            return ("forged" if plain is None else "malformed"), []
        neighbour.seen.note(header.sequence)
        neighbour.heard[probe.link] = now
        if len(neighbour.heard) > 2 * len(self._links) + 16:
            neighbour.heard.clear()  # it invents links
        return "", self._report(header.incarnation, neighbour, now)

    def _report(self, node: bytes, neighbour: _Neighbour, now: float, *, always: bool = False) -> list[Command]:
        """News at once; and everything once in each period, for it may have been lost."""
        oldest = now - self._settings.unheard_s
        heard = tuple(sorted(link for link, at in neighbour.heard.items() if at > oldest))
        if heard == neighbour.reported and not always:
            return []
        neighbour.reported = heard
        return [SendReport(node, heard)]

    def deadline(self) -> float | None:
        return self._probe_at

    def tick(self, now: float) -> list[Command]:
        return self.probe(now) if self._probe_at is not None and now >= self._probe_at else []

    def probe(self, now: float) -> list[Command]:
        self._probe_at = now + self._settings.probe_s
        # As long as any datagram there: who hears it hears them all.
        length = self._settings.datagram_bytes_max
        commands: list[Command] = [
            Multicast(link, [self._voice.say(Probe(link), length_min=length)]) for link in self._links
        ]
        for node, neighbour in self._neighbours.items():
            commands.append(Unicast(node, [self._voice.say(Probe(UNICAST))]))
            commands += self._report(node, neighbour, now, always=True)
        return commands
