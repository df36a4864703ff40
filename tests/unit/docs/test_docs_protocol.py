"""Goal: docs/protocol is what the code speaks: another client can be written from it."""
import re
from pathlib import Path

import msgspec

from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import encode
from angarium.core.wire.frames import FRAMES, Hello, Publish, SessionOpen
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_frames import EVERY_KIND, sample
from tests.unit.core.core_node import HELLO, Node
from tests.unit.docs import wire_fields

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| (\d+) \| (\w+) \| (?:→|←|↔|bus) \|([^|\n]*)\|", re.MULTILINE)
_DIRECTION = re.compile(r"^\| \d+ \| (\w+) \| (→|←|↔|bus) \|", re.MULTILINE)
_CODE = re.compile(r"""(?:RemoteProtocolError|Rejected|InputRefused|SessionClosed|ProducerClosed|Failure|_violation|
                       _packed)\(\s*(?:self\._number,\s*|frame\.producer,\s*|properties,\s*)?"([a-z]+(?:-[a-z]+)+)""",
                   re.VERBOSE)  # fmt: skip


def test_the_table_of_frames_is_that_of_the_code() -> None:
    rows = _ROW.findall((ROOT / "docs/protocol/wire.md").read_text(encoding="utf-8"))
    documented = {int(kind): (name, [f for f in fields.strip().split(", ") if f]) for kind, name, fields in rows}
    spoken = {
        kind: (frame.__name__, [f.name for f in msgspec.structs.fields(frame)]) for kind, frame in FRAMES.items()
    }
    assert documented == spoken


def test_the_types_of_the_fields_are_those_of_the_code() -> None:
    told = "docs/protocol/fields.md is out of date: python -m tests.unit.docs.wire_fields"
    assert wire_fields.PAGE.read_text(encoding="utf-8") == wire_fields.page(), told


def test_the_example_is_what_the_code_writes() -> None:
    page = (ROOT / "docs/protocol/wire.md").read_text(encoding="utf-8")
    example = page[page.index("## An example") : page.index("## Publishing")]
    written = [
        bytes.fromhex("".join(line[10:] for line in block.splitlines())) for block in example.split("```\n")[1::2]
    ]
    columns = MessageColumns(priorities=[4, 9])
    batch = pack(bytes(range(16)), 1, 1_700_000_000_000, [b"hello", b"again"], columns)
    assert written == [encode(0, Hello(1, "app", "docs")), encode(1, Publish(1), batch)]
    assert Batch.parse(written[1][0x12:]).count == 2


def test_what_a_client_may_send_is_documented_as_such() -> None:
    documented = dict(_DIRECTION.findall((ROOT / "docs/protocol/wire.md").read_text(encoding="utf-8")))
    for kind in EVERY_KIND:
        client = Node().connect(greet=kind is not Hello)
        if kind not in (Hello, SessionOpen):
            client.open_session()
        client.send(HELLO if kind is Hello else sample(kind))
        if client.failure != "unexpected-frame":
            assert documented[kind.__name__] in ("→", "↔"), kind.__name__


def test_every_code_that_is_raised_is_documented() -> None:
    page = (ROOT / "docs/protocol/codes.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    sources = (ROOT / "src/angarium").rglob("*.py")
    raised = {code for path in sources for code in _CODE.findall(path.read_text("utf-8"))}
    assert len(raised) > 50, "the pattern finds the places"
    assert raised <= documented


def test_links_between_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_coverage_names_modules_and_tests_that_exist() -> None:
    text = (ROOT / "docs/coverage.md").read_text(encoding="utf-8")
    folder = ""
    for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", text):
        if name.startswith("tests/"):
            folder = name.rpartition("/")[0] + "/"
            assert (ROOT / name).exists(), name
        elif name.startswith("test_"):
            assert (ROOT / folder / name).exists() or list((ROOT / "tests").rglob(name)), name
        else:
            assert (ROOT / "src/angarium" / name).exists() or (ROOT / name).exists(), name


def test_the_tour_of_the_source_passes_every_file_of_the_parts_that_it_shows() -> None:
    tour = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    for heading, package in (
        ("A destination", "core/destination"),
        ("Group services", "core/groups"),
        ("Replication", "core/replication"),
        ("Moving a destination", "core/moving"),
        ("A node of a cluster", "node/cluster"),
    ):
        section = tour[tour.index(f"## {heading} in parts\n") :].split("\n## ")[0]
        named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", section)}
        there = {path.name for path in (ROOT / "src/angarium" / package).glob("*.py")} - {"__init__.py"}
        assert there - named == set(), package
