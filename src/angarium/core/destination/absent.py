"""The answers to frames for a destination that has been removed meanwhile."""
from angarium.core.destination.events import Command, ToSession
from angarium.core.wire import frames


def answer_removed(session: bytes, frame: frames.Frame) -> list[Command]:
    code, reason = "destination-removed", "the destination has been removed"
    match frame:
        case frames.Publish(number) | frames.ProducerOpen(number):
            return [ToSession(session, frames.ProducerClosed(number, code, reason))]
        case frames.ConsumerOpen(number):
            return [ToSession(session, frames.ConsumerClosed(number, code, reason))]
        case frames.ConsumerClose(number):
            return [ToSession(session, frames.ConsumerClosed(number))]
        case frames.StreamOpen(number):
            return [ToSession(session, frames.StreamClosed(number, code, reason))]
        case frames.StreamRead():
            return [ToSession(session, frames.StreamReadEnd(frame.reader, code, reason, frame.attachment))]
    return []
