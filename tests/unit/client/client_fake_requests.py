"""What the fake broker answers to requests of administration."""
from typing import TYPE_CHECKING, Any

from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.lanes import place_of

if TYPE_CHECKING:
    from tests.unit.client.client_fake_broker import FakePeer
    from tests.unit.client.client_fake_log import Log


def on_request(peer: "FakePeer", frame: frames.Request) -> None:
    broker, arguments = peer.broker, frame.arguments

    def answer(result: Any, payload: bytes = b"") -> None:
        peer.send(0, frames.Reply(frame.number, "", "", result), payload)

    match frame.command:
        case "echo":
            answer(arguments, b"payload")
        case "destination.create" if arguments.get("temporary"):
            name = f"temporary.{frame.number}.{broker.next_id().hex()}"
            kinds = {"queue": DestinationKind.QUEUE, "topic": DestinationKind.TOPIC}
            broker.log(name, kinds[arguments["kind"]])
            answer({"name": name})
        case "subscription.remove":
            known = broker.log(arguments["name"]).subscriptions.pop(arguments["subscription"], None)
            code, reason = ("unknown-subscription", "there is none") if known is None else ("", "")
            peer.send(0, frames.Reply(frame.number, code, reason, {}))
        case "destination.explain":
            waiting = any(subscription.waiting for subscription in broker.log(arguments["name"]).subscriptions.values())
            consumers = [each for session in peer.sessions.values() for each in session.consumers.values()]
            has_credit = any(each.limit > each.delivered for each in consumers)
            code = ("delivering" if has_credit else "no-credit") if waiting else "held"
            answer({"name": arguments["name"], "kind": "queue", "code": code})
        case "destination.browse":
            answer(*_browsed(broker.log(arguments["name"]), arguments))
        case "silence":
            pass
        case _:
            peer.send(0, frames.Reply(frame.number, "unknown-command", f"no command {frame.command}"))


def _browsed(log: "Log", arguments: dict[str, Any]) -> tuple[Any, bytes]:
    """A page of what nobody has settled; with a selector, of what has a body that begins with it."""
    position, left = max(0, arguments["place"] - place_of(0)), arguments["count"]
    parts, payload = [], b""
    ends = arguments.get("ends", [place_of(log.end)])
    for first, batch in log.batches:
        for at in range(max(position, first), min(first + batch.count, ends[-1] - place_of(0))):
            if not left:
                break
            position, body = at + 1, batch.body(at - first)
            settled = log.subscriptions[""].settled
            if at not in settled and body.startswith(arguments.get("selector", "").encode()):
                part = batch.slice(at - first, at - first + 1)
                parts.append({"position": at, "count": 1, "bytes": len(part.data)})
                payload += part.data
                left -= 1
    return {"parts": parts, "next": place_of(position), "ends": ends, "end": ends[-1]}, payload
