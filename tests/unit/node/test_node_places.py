"""Goal: where a node cannot listen or keep its data is found out before anything is created."""
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.errors import ConfigError, Unavailable
from angarium.node.cluster.settings import ClusterSettings
from angarium.node.cluster.sizes import FRAME_BYTES_MAX, SEGMENT_BYTES_MIN, check_journal
from angarium.node.config import NodeConfig, NodeSettings
from angarium.node.places import (
    addresses_here,
    check_free,
    check_places,
    foreign_files,
    is_open_to_others,
    located,
    missing_interfaces,
)
from angarium.store.durable import DurableStore
from angarium.store.settings import StoreSettings


@pytest.fixture(autouse=True)
def nothing_in_var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that name no directory mean ./var, where `make up` has left a store of its own."""
    monkeypatch.chdir(tmp_path)


def test_good_places(tmp_path: Path) -> None:
    settings = NodeSettings(listen="127.0.0.1:0", data=str(tmp_path / "new" / "data"))
    check_places(NodeConfig(settings))
    check_free(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", ["file", "file/below"])
def test_data_in_a_file_is_refused_by_name(tmp_path: Path, data: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="file is a file; name a directory"):
        check_places(NodeConfig(NodeSettings(data=str(tmp_path / data))))


@pytest.mark.parametrize("data", ["", "new/data"])
def test_data_where_this_user_may_not_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    asked: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        """Root may write everywhere, and tests may be run by root."""
        assert mode & os.W_OK
        asked.append(path)
        return False

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(ConfigError, match=f"this user may not write to {tmp_path}$"):
        check_places(NodeConfig(NodeSettings(data=str(tmp_path / data))))
    assert asked == [tmp_path]


def test_data_of_a_broker_alone_and_of_a_node_of_a_cluster_are_not_taken_for_each_other(tmp_path: Path) -> None:
    alone, in_cluster = NodeSettings(data=str(tmp_path / "alone")), NodeSettings(name="a", data=str(tmp_path / "node"))
    cluster = ClusterSettings(
        name="c", secret="s" * 16, listen="127.0.0.1:4570", voters=("a=127.0.0.1:4570",), groups=("g: a",)
    )
    for made, below in ((alone, ""), (in_cluster, "node")):
        DurableStore.open(Path(made.data) / below, StoreSettings()).close()
    check_places(NodeConfig(alone))
    check_places(NodeConfig(in_cluster, cluster=cluster))
    with pytest.raises(ConfigError, match="holds a node of a cluster; start that with `node`, or choose another"):
        check_places(NodeConfig(in_cluster))
    with pytest.raises(ConfigError, match="holds the messages of a broker that is alone"):
        check_places(NodeConfig(alone, cluster=cluster))
    DurableStore.open(Path(in_cluster.data), StoreSettings()).close()
    check_places(NodeConfig(in_cluster, cluster=cluster))  # its own are there, whatever lies beside them


def test_a_host_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'no.such.host.invalid:1'.*this machine has 127\.0\.0\.1"):
        check_places(NodeConfig(NodeSettings(listen="no.such.host.invalid:1")))


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match=r"cannot listen on 127.0.0.1:.*in use; stop what listens"):
            check_free(NodeSettings(listen=f"127.0.0.1:{taken.getsockname()[1]}"))


def test_a_port_in_use_is_named_though_only_a_host_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr("angarium.node.config.PORT_DEFAULT", port)
        with pytest.raises(Unavailable, match=rf"cannot listen on 127.0.0.1:{port}: .*in use; stop what listens"):
            check_free(NodeSettings(listen="127.0.0.1"))


def test_files_that_are_not_a_store_are_named(tmp_path: Path) -> None:
    assert foreign_files(tmp_path / "missing") == foreign_files(tmp_path) == ""
    for name in ("lock", "journal-1-0.seg", "ballast", "lost+found"):
        (tmp_path / name).touch()
    assert foreign_files(tmp_path) == ""
    for name in ("d", "c", "b", "a", "e"):
        (tmp_path / name).touch()
    assert foreign_files(tmp_path) == "a, b, c and 2 more"
    (tmp_path / "data.mdb").touch()
    assert foreign_files(tmp_path) == ""


@pytest.mark.parametrize(
    ("host", "is_open"), [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)]
)
def test_who_else_may_connect(host: str, is_open: bool) -> None:
    assert is_open_to_others(host) == is_open


def test_an_address_of_another_machine_is_found_before_the_start() -> None:
    with pytest.raises(ConfigError, match="it is no address of this machine"):
        check_places(NodeConfig(NodeSettings(listen="203.0.113.7:4560")))
    check_places(NodeConfig(NodeSettings(listen="127.0.0.1:1")))


@pytest.mark.parametrize(
    ("name", "listen", "found"),
    [
        ("v1", "", "127.0.0.2:99"),  # as the voters' list has it
        ("v2", "", "[::1]:98"),
        ("other", "", "127.0.0.1:4570"),  # from where it reaches the first voter
        ("v1", "127.0.0.3:97", "127.0.0.3:97"),
    ],
)
def test_where_other_nodes_connect_need_not_be_said(name: str, listen: str, found: str) -> None:
    cluster = ClusterSettings(
        name="orders", secret="0123456789abcdef", listen=listen, voters=("v1=127.0.0.2:99", "v2=[::1]:98", "v3=h:1")
    )
    assert located(NodeConfig(NodeSettings(name=name), cluster=cluster)).cluster.listen == found
    assert located(NodeConfig()) == NodeConfig(), "a broker that is alone"


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("203.0.113.7:4570", r"it is no address of this machine, which has 127\.0\.0\.1"),
        ("no.such.host.invalid:1", r"this machine has 127\.0\.0\.1"),
        ("0.0.0.0:4570", r"other nodes are told to connect there; use one of 127\.0\.0\.1"),
    ],
)
def test_where_other_nodes_connect_is_an_address_of_this_machine(listen: str, told: str) -> None:
    cluster = ClusterSettings(
        name="orders", secret="0123456789abcdef", voters=("a=h:1",), groups=("a: a",), listen=listen
    )
    with pytest.raises(ConfigError, match=f"cluster.listen '{listen}': .*{told}"):
        check_places(NodeConfig(cluster=cluster))


def test_all_that_is_wrong_with_places_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refused:
        check_places(NodeConfig(NodeSettings(listen="203.0.113.7:4560", data=str(tmp_path / "file"))))
    assert [mistake.partition(" ")[0] for mistake in refused.value.mistakes] == ["node.listen", "node.data"]


def test_addresses_of_this_machine_can_be_listened_on() -> None:
    for address in addresses_here():
        if not address.startswith("fe80"):  # of one interface only, which would have to be named
            check_places(NodeConfig(NodeSettings(listen=f"[{address}]:0" if ":" in address else f"{address}:0")))


def test_what_goes_between_nodes_of_a_cluster_fits_the_bus_and_every_journal() -> None:
    cluster = ClusterSettings(
        name="orders", secret="0123456789abcdef", voters=("a=h:1",), groups=("a: a",), listen="127.0.0.1:1",
    )  # fmt: skip
    good = NodeConfig(NodeSettings(name="a", listen="127.0.0.1:0"), cluster=cluster)
    check_places(good)
    check_places(replace(good, session=replace(good.session, frame_bytes_max=FRAME_BYTES_MAX)))
    large = replace(good.session, frame_bytes_max=FRAME_BYTES_MAX + 1)
    small = replace(good.store, segment_bytes=SEGMENT_BYTES_MIN - 4096)
    with pytest.raises(ConfigError) as refused:
        check_places(replace(good, session=large, store=small))
    first, second = refused.value.mistakes
    assert "session.frame_bytes_max 8,388,609: at most 8,388,608 in a cluster" in first
    assert "store.segment_bytes 10,481,664: at least 10,485,760 in a cluster" in second
    check_places(replace(good, cluster=ClusterSettings(), session=large, store=small))


def test_a_journal_that_was_made_for_less_is_refused(tmp_path: Path) -> None:
    enough = DurableStore.open(tmp_path / "enough", StoreSettings(segment_bytes=SEGMENT_BYTES_MIN))
    check_journal(tmp_path, enough)
    enough.close()
    small = DurableStore.open(tmp_path / "small", StoreSettings(segment_bytes=SEGMENT_BYTES_MIN - (1 << 20)))
    with pytest.raises(ConfigError, match=r"its journal takes \d.* put that directory aside"):
        check_journal(tmp_path, small)
    small.close()


def test_interfaces_of_buses_that_are_not_here_are_named() -> None:
    cluster = ClusterSettings(
        name="orders", secret="0123456789abcdef", voters=("a=h:1",), groups=("a: a",), buses=("red", "blue: b"),
        bus_interfaces=("red=nowhere0",), listen="127.0.0.1:1",
    )  # fmt: skip
    on_both, on_blue = (NodeConfig(NodeSettings(name=name), cluster=cluster) for name in ("a", "b"))
    (told,) = missing_interfaces(on_both)
    assert "bus 'red' is to be on interface 'nowhere0'" in told and "it has lo" in told
    assert missing_interfaces(on_blue) == []
    assert missing_interfaces(replace(on_both, cluster=replace(cluster, multicast=False))) == []
    assert missing_interfaces(NodeConfig()) == []
