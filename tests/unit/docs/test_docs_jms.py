"""Goal: every rule that docs/guide/jms.md claims to be kept names a test that exists."""
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_rule_names_tests_that_exist() -> None:
    page = (ROOT / "docs/guide/jms.md").read_text(encoding="utf-8")
    rules = page[page.index("## Rules") : page.index("## Different")]
    named = set(re.findall(r"`(test_\w+)`", rules))
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    assert len(named) > 30
    assert named <= existing
    rows = [row for row in rules.splitlines() if row.startswith("| ") and "|---" not in row][1:]
    assert all("`test_" in row for row in rows), "a rule without a test"
