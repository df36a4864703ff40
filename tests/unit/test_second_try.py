"""Goal: a second try excuses a few tests of real processes, and nothing else."""
import pytest

from tests.second_try import TESTS_FAILED, TRIES_MAX, why_not

PROCESS = [f"tests/process/test_a.py::test_{n}" for n in range(TRIES_MAX + 1)]


@pytest.mark.parametrize("failed", [PROCESS[:1], ["tests/netns/test_n.py::test_n", "tests/spark/test_s.py::test_s"]])
def test_a_few_tests_of_real_processes_are_tried_again(failed: list[str]) -> None:
    assert why_not(TESTS_FAILED, failed) == ""


@pytest.mark.parametrize(
    ("exit_code", "failed", "reason"),
    [
        (TESTS_FAILED, [], "exit code 1"),
        (2, PROCESS[:1], "exit code 2"),  # it was interrupted, or could not read its tests
        (TESTS_FAILED, PROCESS, f"{TRIES_MAX + 1} failed"),
        (TESTS_FAILED, [*PROCESS[:1], "tests/simulation/test_cluster.py::test_seed[7]"], "test_seed"),
        (TESTS_FAILED, ["tests/unit/test_a.py::test_a"], "test_a"),
        (TESTS_FAILED, ["tests/store/test_a.py::test_a"], "test_a"),
    ],
)
def test_everything_else_stays_a_failure(exit_code: int, failed: list[str], reason: str) -> None:
    assert reason in why_not(exit_code, failed)
