"""Goal: the settings that the guide to clusters shows are right, as `config check` would say on the machine they are
for."""
import re
from pathlib import Path

import pytest

from angarium.node.cluster.buses import Buses
from angarium.node.cluster.settings import check_client_manager
from angarium.node.config import load_config

_PAGE = (Path(__file__).parents[3] / "docs/guide/cluster.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)
ON = [["bus"], ["red"], ["red"]]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_are_right(tmp_path: Path, number: int) -> None:
    file = tmp_path / "node.toml"
    file.write_text(EXAMPLES[number], encoding="utf-8")
    config = load_config(file, {})
    check_client_manager(config.cluster, config.node.name)
    assert [bus.name for bus in Buses(config.cluster, config.node.name).mine] == ON[number]
