"""Goal: docs/protocol/bus.md is what nodes say: another node can be written from it."""
import re
import struct
from pathlib import Path

from angarium.core.bus import datagram, link
from angarium.core.bus.datagram import HEADER, Kind
from angarium.core.bus.events import BusSettings

PAGE = (Path(__file__).parents[3] / "docs/protocol/bus.md").read_text(encoding="utf-8")
_CODES = {
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "16 bytes": "16s", "32 bytes": "32s", "4 bytes": "4s",
}  # fmt: skip
_TYPE = re.compile(r"\b(u8|u16|u32|u64|i32|16 bytes|32 bytes|4 bytes)\b")


def _table_after(title: str) -> list[tuple[int, str]]:
    """Offsets and types of the first table of fields after that line."""
    section = PAGE[PAGE.index(title) :].partition("\n\n**")[0]
    rows = re.findall(r"^\| (\d+) \| (u\d+|\d+ bytes) \|", section, re.MULTILINE)
    return [(int(offset), kind) for offset, kind in rows]


def _check(fields: list[tuple[int, str]], layout: struct.Struct) -> None:
    at = 0
    for offset, kind in fields:
        assert offset == at
        at += struct.calcsize("<" + _CODES[kind])
    assert "<" + "".join(_CODES[kind] for _, kind in fields) == layout.format and at == layout.size


def test_the_header_is_as_described() -> None:
    _check(_table_after("## Datagram"), HEADER)


def test_the_greeting_is_as_described() -> None:
    _check(_table_after("## TCP links")[:7], link._GREETING)


def test_kinds_and_bodies_are_as_described() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert {int(number): name.upper() for number, name, _ in rows} == {kind.value: kind.name for kind in Kind}
    for number, _, body in rows:
        if int(number) != Kind.DATA:
            layout = datagram._LAYOUTS[int(number)][0]
            assert "<" + "".join(_CODES[kind] for kind in _TYPE.findall(body)) == layout.format, number


def test_figures_are_those_of_the_settings() -> None:
    settings = BusSettings()
    for figure in (
        f"At most {settings.datagram_bytes_max:,} bytes in all",
        f"After {settings.ack_every_datagrams} datagrams in order, after {settings.ack_after_s * 1e3:g} ms",
        f"after {settings.heartbeat_s_min * 1e3:g} ms, every {settings.heartbeat_s_min * 1e3:g} ms",
        f"when idle, up to {settings.heartbeat_s_max:g} s",
        f"max({settings.nak_backoff_s_min * 1e3:g} ms, round trip)",
        f"doubles, up to {settings.nak_backoff_s_max:g} s",
        f"gathers questions for {settings.repair_gather_s * 1e3:g} ms",
        f"limited to {settings.repair_share_max:.0%} of its data".replace("%", " %"),
        f"plus {settings.repair_bytes_burst >> 10} KiB, plus {settings.repair_bytes_per_s >> 20} MiB for each second",
        f"starts at {settings.pace_bytes_per_s_first >> 20} MiB/s",
        f"not below {settings.pace_bytes_per_s_min >> 20} MiB/s",
        f"has {settings.evict_after_s:g} s to get to where the best one was",
        f"or on by {settings.progress_datagrams_min:,} datagrams",
        f"up to {settings.ring_datagrams_max:,} datagrams. Above {settings.ring_datagrams_high:,}",
        f"below {settings.ring_datagrams_low:,} unblocked",
        f"Every {settings.probe_s:g} s a node sends a Probe",
        f"in the last {settings.unheard_s:g} s",
        f"repeated after {settings.repeat_s * 1e3:g} ms, doubled up to {settings.repeat_s_max:g} s",
    ):
        assert figure in PAGE, figure
