"""Goal: of a disk that answers in few places it is known where; of any other that nobody has to go anywhere.
Method: trees as the kernel shows them, below the test's own directory. The disk is the one that this directory itself
is on: under its number the trees have what the test says."""
import os
from pathlib import Path

import pytest

from angarium.runtime.interrupts import interrupted_processors, parse_list

DEVICE = "devices/pci0000:00/0000:00:02.0"
DISK = f"{DEVICE}/virtio1/block/vda"


class Machine:
    """With four processors, and a disk of one queue unless something else is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, *, is_there: bool = True) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
        self.directory = directory
        self.system, self.processes = directory / "sys", directory / "proc"
        (self.system / "dev/block").mkdir(parents=True)
        self.processes.mkdir()
        if is_there:
            self.queues(1)
            self.disk_is(DISK)

    def disk_is(self, path: str) -> None:
        device = self.directory.stat().st_dev
        link = self.system / f"dev/block/{os.major(device)}:{os.minor(device)}"
        link.unlink(missing_ok=True)
        (self.system / path).mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("../..") / path)

    def queues(self, count: int) -> None:
        for number in range(count):
            (self.system / DISK / f"mq/{number}").mkdir(parents=True, exist_ok=True)

    def interrupt(self, number: int, where: str, *, of: str = DEVICE, handler: str = "virtio1-req.0") -> None:
        (self.system / of / "msi_irqs").mkdir(parents=True, exist_ok=True)
        (self.system / of / f"msi_irqs/{number}").write_text("msix\n")
        (self.processes / f"irq/{number}/{handler}").mkdir(parents=True)
        (self.processes / f"irq/{number}/effective_affinity_list").write_text(where + "\n")

    def interrupted(self, path: Path | None = None) -> set[int]:
        return set(interrupted_processors(path or self.directory, self.system, self.processes))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_one_queue_answers_where_its_interrupt_comes_to(machine: Machine) -> None:
    machine.interrupt(36, "2")
    assert machine.interrupted() == {2}


def test_an_interrupt_may_come_to_several(machine: Machine) -> None:
    machine.interrupt(36, "0-1,3")
    assert machine.interrupted() == {0, 1, 3}


def test_fewer_queues_than_processors_answer_in_several_places(machine: Machine) -> None:
    machine.queues(3)
    for number, where in ((36, "0"), (37, "2"), (38, "2")):
        machine.interrupt(number, where, handler=f"virtio1-req.{number - 36}")
    assert machine.interrupted() == {0, 2}


@pytest.mark.parametrize("queues", [4, 5])
def test_a_queue_for_each_processor_answers_where_it_was_asked(machine: Machine, queues: int) -> None:
    machine.queues(queues)
    machine.interrupt(36, "2")
    assert machine.interrupted() == set()


def test_it_is_the_processors_of_this_process_that_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    machine.interrupt(36, "2")
    assert machine.interrupted() == set(), "with one processor there is nowhere else to go"


@pytest.mark.parametrize("aside", ["config", "control", "event"])
def test_that_the_device_has_changed_is_told_elsewhere(machine: Machine, aside: str) -> None:
    machine.interrupt(35, "0", handler=f"virtio1-{aside}")
    machine.interrupt(36, "2")
    assert machine.interrupted() == {2}


def test_a_device_that_tells_only_of_changes_tells_nobody(machine: Machine) -> None:
    machine.interrupt(35, "0", handler="virtio1-config")
    assert machine.interrupted() == set()


def test_interrupts_of_other_devices_do_not_count(machine: Machine) -> None:
    machine.interrupt(36, "2")
    machine.interrupt(40, "3", of="devices/pci0000:00/0000:00:03.0")
    machine.interrupt(41, "1", of=f"{DEVICE}/virtio2")
    assert machine.interrupted() == {2}


def test_a_bridge_before_the_device_tells_of_itself_alone(machine: Machine) -> None:
    machine.interrupt(24, "0", of="devices/pci0000:00", handler="PCIe PME")
    machine.interrupt(36, "2")
    assert machine.interrupted() == {2}


def test_a_partition_is_told_of_where_its_disk_is(machine: Machine) -> None:
    machine.disk_is(f"{DISK}/vda1")
    machine.interrupt(36, "2")
    assert machine.interrupted() == {2}


def test_a_partition_of_a_disk_with_a_queue_for_each_processor(machine: Machine) -> None:
    machine.disk_is(f"{DISK}/vda1")
    machine.queues(4)
    machine.interrupt(36, "2")
    assert machine.interrupted() == set()


# -- nobody knows ----------------------------------------------------------------------------------------------------


def test_of_a_device_that_is_no_disk_nobody_knows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, tmp_path, is_there=False)
    machine.interrupt(36, "2")
    assert machine.interrupted() == set()


def test_of_a_disk_that_is_no_longer_there_nobody_knows(machine: Machine) -> None:
    machine.interrupt(36, "2")
    (machine.system / DISK / "mq/0").rmdir()
    (machine.system / DISK / "mq").rmdir()
    (machine.system / DISK).rmdir()
    assert machine.interrupted() == set()


def test_of_a_disk_without_queues_nobody_knows(machine: Machine) -> None:
    """As one that is made of several others."""
    machine.disk_is("devices/virtual/block/dm-0")
    machine.interrupt(36, "2", of="devices/virtual")
    assert machine.interrupted() == set()


def test_of_a_disk_without_such_interrupts_nobody_knows(machine: Machine) -> None:
    assert machine.interrupted() == set()


@pytest.mark.parametrize("missing", ["effective_affinity_list", ""])
def test_of_an_interrupt_that_the_system_does_not_describe_nobody_knows(machine: Machine, missing: str) -> None:
    machine.interrupt(36, "2")
    (machine.processes / "irq/36/effective_affinity_list").unlink()
    if not missing:
        (machine.processes / "irq/36/virtio1-req.0").rmdir()
        (machine.processes / "irq/36").rmdir()
    assert machine.interrupted() == set()


def test_of_a_directory_that_is_not_there_nobody_knows(machine: Machine) -> None:
    machine.interrupt(36, "2")
    assert machine.interrupted(machine.directory / "elsewhere") == set()


def test_this_machine_as_it_is_can_be_asked(tmp_path: Path) -> None:
    assert all(processor >= 0 for processor in interrupted_processors(tmp_path))


# -- lists of the kernel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0\n", [0]), ("0-2,5\n", [0, 1, 2, 5]), ("3-3", [3]), ("1,3,10-12", [1, 3, 10, 11, 12]), ("\n", []), ("", [])],
)
def test_a_list_of_the_kernel_is_numbers_and_ranges(text: str, expected: list[int]) -> None:
    assert parse_list(text) == expected
