"""A test of real processes that failed beside all others is run once more, alone, and both outcomes are told.

    pytest ... || python -m tests.second_try EXIT_CODE

How soon processes, networks and disks answer depends on what else the machine does, and with a hundred of them at a
time some wait is now and then too short. So a few such failures are tried again where nothing disturbs them. What runs
in virtual time has no such excuse, and many failures are not the machine's: those stay failures. Whatever needs its
second try has a race, in the test or in the product, and is to be looked at: the first run has told where.
"""
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
OF_REAL_PROCESSES = ("tests/process/", "tests/netns/", "tests/spark/")
TRIES_MAX = 3
TESTS_FAILED = 1  # pytest's exit code; others say that it could not run them


def why_not(exit_code: int, failed: Collection[str]) -> str:
    """Why nothing is tried again; empty if all of it is."""
    if exit_code != TESTS_FAILED or not failed:
        return f"the tests ended with exit code {exit_code}"
    if firm := [test for test in failed if not test.startswith(OF_REAL_PROCESSES)]:
        return f"{firm[0]} does not depend on how busy the machine is"
    if len(failed) > TRIES_MAX:
        return f"{len(failed)} failed, more than {TRIES_MAX}"
    return ""


def main(exit_code: int) -> int:
    failed = list(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if reason := why_not(exit_code, failed):
        print(f"No second try: {reason}.", flush=True)
        return exit_code
    print("Failed beside all others, and now alone:", *failed, sep="\n    ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed], check=False).returncode
    if code == 0:
        print("Passed only at the second try, alone:", *failed, sep="\n    ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
