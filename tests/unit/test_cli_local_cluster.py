"""Goal: what lies in a directory is not started as another cluster than it is."""
from pathlib import Path

import pytest

from angarium.cli.failure import Failure
from angarium.cli.local_cluster import LocalCluster, found_shape


def test_data_are_not_started_with_other_counts_or_ports(tmp_path: Path) -> None:
    def cluster(copies: int = 3, base_port: int = 4_600) -> LocalCluster:
        return LocalCluster(tmp_path / "data", base_port, client_managers=2, groups=2, copies=copies)

    assert found_shape(tmp_path / "data") == ""
    cluster().check_same()
    cluster().write_configuration()
    cluster().check_same()
    assert found_shape(tmp_path / "data") == "--cms 2 --groups 2 --copies 3 --base-port 4600"
    for other in (cluster(copies=1), cluster(base_port=5_000)):
        with pytest.raises(Failure, match="was made with --cms 2 --groups 2 --copies 3 --base-port 4600"):
            other.check_same()
