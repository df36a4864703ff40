"""Angarium: a message broker cluster for Python people. This is its client; `angarium.blocking` is its blocking face.

    async with angarium.connect("angarium://localhost") as connection, connection.session() as session:
        await session.send("orders", b"...")

A name is imported when it is first used: the command line has to be there at once, and a node needs none of them.
"""
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from angarium.client import blocking
    from angarium.client.connection import Answer, Connection, connect
    from angarium.client.consumer import Consumer
    from angarium.client.dead_letter import DeadLetter
    from angarium.client.destination import Destination, Pattern, Queue, Topic
    from angarium.client.fields import MessageFields
    from angarium.client.log import Log, LogDescription, LogGone, LogLane, LogPage, LogPiece
    from angarium.client.message import Message
    from angarium.client.pattern_consumer import PatternConsumer
    from angarium.client.sending import Sending
    from angarium.client.session import Session
    from angarium.client.transacted import TransactedSession
    from angarium.client.values import TypedMap, TypedStream
    from angarium.core.client.reconnect import ReconnectPolicy
    from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, RemoteProtocolError, Unavailable

__all__ = [
    "AngariumError", "Answer", "Connection", "Consumer", "DeadLetter", "Destination", "LocalProtocolError", "Log",
    "LogDescription", "LogGone", "LogLane", "LogPage", "LogPiece", "Message", "MessageFields", "Pattern",
    "PatternConsumer", "Queue", "ReconnectPolicy", "Rejected", "RemoteProtocolError",
    "Sending", "Session", "Topic", "TransactedSession", "TypedMap", "TypedStream", "Unavailable", "blocking", "connect",
]  # fmt: skip

_HOMES = {
    "angarium.client": ("blocking",),
    "angarium.client.connection": ("Answer", "Connection", "connect"),
    "angarium.client.consumer": ("Consumer",),
    "angarium.client.dead_letter": ("DeadLetter",),
    "angarium.client.destination": ("Destination", "Pattern", "Queue", "Topic"),
    "angarium.client.fields": ("MessageFields",),
    "angarium.client.log": ("Log", "LogDescription", "LogGone", "LogLane", "LogPage", "LogPiece"),
    "angarium.client.message": ("Message",),
    "angarium.client.pattern_consumer": ("PatternConsumer",),
    "angarium.client.sending": ("Sending",),
    "angarium.client.session": ("Session",),
    "angarium.client.transacted": ("TransactedSession",),
    "angarium.client.values": ("TypedMap", "TypedStream"),
    "angarium.core.client.reconnect": ("ReconnectPolicy",),
    "angarium.core.errors": ("AngariumError", "LocalProtocolError", "Rejected", "RemoteProtocolError", "Unavailable"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            module = importlib.import_module(f"{home}.{name}" if name == "blocking" else home)
            value = globals()[name] = module if name == "blocking" else getattr(module, name)
            return value
    raise AttributeError(f"module 'angarium' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
