"""The command `angarium`: from the first instruction to the exit code.

Importing the commands takes a noticeable moment. Until then Ctrl-C ends the process as if it were not Python.
"""
import os
import signal
import sys


def main() -> None:
    impatient = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a shell has us ignore it
    if impatient:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_standard_streams()
    from angarium.cli import failure
    from angarium.cli.commands import run

    if impatient:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    failure.run(lambda: run(sys.argv[1:]))


def _open_standard_streams() -> None:
    """A shell may start us with `<&-` or `>&-`; the next file or socket must not get the number of a standard stream.
    Writing to an output that was closed fails, so that no message is taken for nobody; so does reading from an input
    that was, which is not an empty one."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
