"""Goal: whatever a body holds is shown as what it is, and an error keeps the lines that point at its place."""
import inspect
import json
import re
import sys
from typing import get_args

import pytest

import angarium
from angarium.admin.model import BrowsedMessage
from angarium.cli import dead, destinations, failure, sending
from angarium.cli.printing import body_as_json, printed_body
from angarium.client.fields import encode_body


def test_values_are_shown_as_json_and_bytes_as_they_are() -> None:
    packed, content = encode_body({"region": "EU", "total": 3})
    assert printed_body(packed, content) == b'{"region":"EU","total":3}'
    assert body_as_json(packed, content) == {"body": {"region": "EU", "total": 3}}
    packed, content = encode_body([1, "two", None])
    assert printed_body(packed, content) == b'[1,"two",null]'
    assert printed_body(b"\xc1", "map") == b"\xc1", "one that cannot be read"
    assert body_as_json(b"\xff", None) == {"body_base64": "/w=="}
    assert printed_body(b'{"a"', None) == b'{"a"'


def test_whatever_may_be_said_with_a_message_can_be_said_on_the_command_line() -> None:
    given = sending.fields_of(properties=["a=1"], reply_to="answers", reply_to_kind=sending.ReplyToKind.TOPIC)
    assert set(given) == set(angarium.MessageFields.__annotations__)
    assert given["reply_to"] == angarium.Topic("answers")


def test_the_kind_of_a_reply_to_is_shown_in_words() -> None:
    headers = {"reply_to": "answers", "reply_to_kind": 2, "dead_letter": {"reason": "rejected"}}
    message = BrowsedMessage(position=0, id="ID:A", timestamp_ms=0, priority=4, expires_ms=0, headers=headers,
                             properties={}, body=b"")  # fmt: skip
    assert re.search(rb"header reply_to_kind +topic\n", dead.as_text(message))
    assert json.loads(dead.as_json_line(message))["headers"] == {"reply_to": "answers", "reply_to_kind": "topic"}


def test_an_error_keeps_the_lines_that_point_at_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    failure.say("selector, column 9: ends\n  too soon\n    region =\n            ^")
    assert capsys.readouterr().err == "angarium: selector, column 9: ends too soon\n    region =\n            ^\n"


def test_altering_shows_no_defaults() -> None:
    """What is not given stays."""

    def default_of(command: object) -> object:
        parameter = inspect.signature(command).parameters["messages_max"]  # type: ignore[arg-type]
        return get_args(parameter.annotation)[1].show_default

    assert (default_of(destinations.create), default_of(destinations.alter)) == ("0", "unchanged")
