"""Angarium: a message broker cluster for Python people. This is its client; `angarium.blocking` is its blocking face.

    async with angarium.connect("angarium://localhost") as connection, connection.session() as session:
        await session.send("orders", b"...")
"""
from angarium.client import blocking
from angarium.client.connection import Answer, Connection, connect
from angarium.client.consumer import Consumer
from angarium.client.destination import Destination, Queue, Topic
from angarium.client.fields import MessageFields
from angarium.client.message import Message
from angarium.client.sending import Sending
from angarium.client.session import Session
from angarium.client.values import TypedMap, TypedStream
from angarium.core.client.reconnect import ReconnectPolicy
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, RemoteProtocolError, Unavailable

__all__ = [
    "AngariumError", "Answer", "Connection", "Consumer", "Destination", "LocalProtocolError", "Message",
    "MessageFields", "Queue", "ReconnectPolicy", "Rejected", "RemoteProtocolError", "Sending", "Session", "Topic",
    "TypedMap", "TypedStream", "Unavailable", "blocking", "connect",
]  # fmt: skip
