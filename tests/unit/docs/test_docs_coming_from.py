"""Goal: what docs/guide/coming-from.md tells newcomers to type, and to call, exists."""
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

from typer.main import get_command

import angarium
from angarium.cli.commands import app
from angarium.client.fields import make_options

_PAGE = (Path(__file__).parents[3] / "docs/guide/coming-from.md").read_text(encoding="utf-8")
_SPANS = re.findall(r"`([^`\n]+)`", _PAGE)


def test_commands_and_their_options_exist() -> None:
    typed = [shlex.split(span)[1:] for span in _SPANS if span.startswith("angarium ")]
    assert len(typed) > 10
    for words in typed:
        command: Any = get_command(app)
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words


def test_what_is_called_exists_and_takes_what_is_given() -> None:
    faces = {"session": angarium.Session, "connection": angarium.Connection, "message": angarium.Message}
    called = [found for span in _SPANS for found in re.findall(r"\b(session|connection|message)\.(\w+)", span)]
    assert len(called) > 10
    for face, name in called:
        assert hasattr(faces[face], name), (face, name)
    fields = {*inspect.signature(make_options).parameters, *inspect.signature(angarium.Session.consume).parameters}
    fields |= {"transacted"}  # of `connection.session`
    named = {name for span in _SPANS for name in re.findall(r"\b([a-z_]+)=", span)}
    assert named - {"acks", "reset"} <= fields  # those are Kafka's
