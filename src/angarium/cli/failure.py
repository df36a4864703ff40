"""How the command line ends: one sentence on standard error and an exit code, never a traceback.

    0    done            130  interrupted (Ctrl-C)
    1    failed          141  whoever read our output went away
    2    wrong usage     143  ended by SIGTERM

Set ANGARIUM_TRACEBACK=1 to see the traceback of a failure that should not happen.
"""
import os
import re
import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from angarium.cli import usage
from angarium.core.errors import AngariumError, RemoteProtocolError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143

# What was typed can be right nowhere, whatever the broker holds.
USAGE_CODES = frozenset({
    "bad-argument", "bad-delay", "bad-header", "bad-name", "bad-pattern", "bad-priority", "bad-property",
    "bad-selector", "bad-setting", "bad-ttl", "reserved-name", "selector-too-long", "unknown-command",
    "unknown-setting",
})  # fmt: skip


class Failure(Exception):
    """The command cannot do what it was asked; the text is for the user."""

    def __init__(self, text: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class OutputClosed(Exception):
    """Whoever read our standard output went away. (Typer would turn a BrokenPipeError into exit code 1.)"""


class Terminated(Exception):
    """By SIGTERM, which ends a command in the same order as Ctrl-C. (Of any KeyboardInterrupt Typer makes exit code
    130.)"""


def run(command: Callable[[], object]) -> NoReturn:
    """Run a Typer application (not standalone) and end the process with the right exit code."""
    if os.environ.get("ANGARIUM_TRACEBACK") == "1":
        sys.exit(_code(command()))
    try:
        code = _code(command())
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        _end(EXIT_INTERRUPTED)
    except Terminated:
        _end(EXIT_TERMINATED)
    except OutputClosed:
        _end(EXIT_BROKEN_PIPE)
    except typer.TyperException as error:
        _tell_usage(error)
        _end(error.exit_code)
    except Failure as error:
        say(str(error))
        _end(error.exit_code)
    except AngariumError as error:
        say(str(error))
        _end(exit_code_of(error))
    except OSError as error:
        say(describe(error))
        _end(EXIT_FAILED)
    except Exception as error:  # the last barrier before the user, who cannot use a traceback
        if isinstance(error.__cause__, KeyboardInterrupt):  # while a module was imported: Python 3.11 wraps it
            _end(EXIT_INTERRUPTED)
        text = str(error) or type(error).__name__
        say(f"unexpected {type(error).__name__}: {text}; ANGARIUM_TRACEBACK=1 shows where")
        _end(EXIT_FAILED)
    sys.exit(code)


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, Failure):
        return error.exit_code
    is_ours = getattr(error, "code", "") in USAGE_CODES and not isinstance(error, RemoteProtocolError)
    return EXIT_USAGE if is_ours else EXIT_FAILED


def say(text: str) -> None:
    """One sentence to the user, on one line of standard error. Lines that are indented follow as they are: several
    mistakes, or, for a person only, what was typed and a mark below it."""
    sentence, *rest = re.split(r"\n(?=    )", text)
    if rest and rest[-1].strip() == "^" and not sys.stderr.isatty():
        rest = rest[:-2]
    shown = ["angarium: " + " ".join(sentence.split()), *(line.rstrip() for line in rest)]
    print("\n".join(shown), file=sys.stderr, flush=True)


def describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _code(result: object) -> int:
    return result if isinstance(result, int) else 0


def _tell_usage(error: typer.TyperException) -> None:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if text.lstrip().startswith("Usage:"):  # a command group without a command: its whole help
        print(text, file=sys.stderr, flush=True)
        return
    text = usage.sentence_of(error)
    if context is None:
        say(text)
    elif text.endswith("?"):
        say(f"{text} See '{context.command_path} --help'")
    else:
        say(f"{text}; see '{context.command_path} --help'")


def _end(code: int) -> NoReturn:
    """Exit without another attempt to write what the reader of a broken pipe will never take."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def plural(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
