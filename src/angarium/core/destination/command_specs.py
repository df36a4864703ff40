"""The administrative commands of a message manager, described: `administration.py` performs them."""
from angarium.core.commands import CommandSpec, Kind, Parameter, Scope

_NAME = Parameter("name", "name of the queue or topic", required=True)
_GROUP = Parameter("group", "number of the replica group that is asked; else the one that has the name", Kind.WHOLE)
_POSITION = Parameter("position", "where to go on; 0 to begin", Kind.WHOLE)
_PLACE = Parameter("place", "where to go on; 0 to begin", Kind.WHOLE)
_COUNT = Parameter("count", "the most of one page", Kind.WHOLE)
_BYTES_MAX = Parameter("bytes_max", "of one page", Kind.WHOLE)
_SELECTOR = Parameter("selector", "only messages that it is true of")
_OPTIONS = (
    Parameter("confirm", "'disk' or 'memory'"),
    Parameter("over_limit", "past a limit: 'block', 'refuse' or 'oldest'"),
    Parameter("slow_subscriber", "of a topic, past a limit: 'wait' or 'drop'"),
    Parameter("buries", "whether what cannot be delivered goes to _DMQ", Kind.FLAG),
    Parameter("last_value", "whether only the last message of each key is kept", Kind.FLAG),
    Parameter("redeliveries_max", "past it to _DMQ; 0 is never", Kind.WHOLE),
    Parameter("redelivery_delay_ms", "before a released message is delivered again", Kind.WHOLE),
    Parameter("messages_max", "how many may wait; 0 is no limit", Kind.WHOLE),
    Parameter("bytes_max", "how much may be stored; 0 is no limit", Kind.WHOLE),
    Parameter("retain_s", "how long settled messages stay in the log", Kind.WHOLE),
    Parameter("retain_bytes", "how much of it", Kind.WHOLE),
    Parameter("retain_messages", "how many of them", Kind.WHOLE),
    Parameter("traced", "whether what becomes of its messages is noted, for an audit", Kind.FLAG),
)
_IDENTITY = Parameter("identity", "its id: refused if the name is another one's by now", Kind.WHOLE)
_PAGE = (Parameter("after", "names after this one"), Parameter("prefix", "names that begin so"), _COUNT, _GROUP)
_DEAD = (
    Parameter("destination", "where they died"),
    Parameter("subscription", "of which subscription"),
    Parameter("reason", "why they died"),
    Parameter("died_before_ms", "milliseconds since 1970", Kind.WHOLE),
    Parameter("died_after_ms", "milliseconds since 1970", Kind.WHOLE),
    _SELECTOR,
    Parameter("ids", "ids of messages", Kind.TEXTS),
    _COUNT,
    _GROUP,
)
_STAGE = (
    _NAME,
    Parameter("query", "who has staged it", required=True),
    Parameter("batch", "its number there: they ascend", Kind.WHOLE, required=True),
    Parameter("parts", "ids of parts, each with the number of its messages", Kind.ANY, required=True),
    _GROUP,
)


def _spec(name: str, text: str, *parameters: Parameter) -> CommandSpec:
    return CommandSpec(name, text, Scope.MANAGER, parameters)


SPECS = {
    spec.name: spec
    for spec in (
        _spec("destination.list", "queues and topics, a page by name", *_PAGE),
        _spec("destination.describe", "one queue or topic: options, counts, subscriptions", _NAME, _GROUP),
        _spec(
            "destination.create", "make a queue or topic", Parameter("name", "its name"),
            Parameter("kind", "'queue' or 'topic'"),
            Parameter("temporary", "it goes with the connection that made it", Kind.FLAG), *_OPTIONS, _GROUP,
        ),
        _spec("destination.alter", "change options while it runs", _NAME, *_OPTIONS, _GROUP),
        _spec("destination.remove", "remove it with its messages", _NAME, _GROUP),
        _spec("destination.purge", "take all its messages off", _NAME, _GROUP),
        _spec(
            "destination.browse", "messages, without taking them: a page", _NAME, _PLACE, _COUNT, _BYTES_MAX,
            _SELECTOR, Parameter("ends", "no further than these, of an earlier page", Kind.ANY), _GROUP,
        ),
        _spec("destination.explain", "why messages are not being delivered", _NAME, _GROUP),
        _spec(
            "subscription.remove", "remove a durable subscription", _NAME,
            Parameter("subscription", "its name", required=True), _GROUP,
        ),
        _spec("trace.describe", "what is not settled of a traced destination, for an audit", _NAME, _GROUP),
        _spec("transaction.list", "transactions that are prepared here and not decided", _GROUP),
        _spec("log.list", "logs, a page by name", *_PAGE),
        _spec("log.describe", "one log: where it begins and ends", _NAME, _IDENTITY, _GROUP),
        _spec(
            "log.seek", "where messages of a time begin", _NAME, _IDENTITY,
            Parameter("timestamp_ms", "milliseconds since 1970", Kind.WHOLE), _GROUP,
        ),
        _spec(
            "log.read", "messages by position, without taking them: a page", _NAME, _IDENTITY, _POSITION, _BYTES_MAX,
            Parameter("end", "up to here", Kind.WHOLE), _SELECTOR,
            Parameter("omit", "parts of messages that are left out", Kind.TEXTS), _GROUP,
        ),
        _spec(
            "log.note", "how far a reader is, for administrators to see", _NAME, _IDENTITY,
            Parameter("reader", "its name", required=True), Parameter("positions", "of each lane", Kind.ANY), _GROUP,
        ),
        _spec("stage.commit", "publish what is staged, once", *_STAGE),
        _spec("stage.abort", "drop what is staged", *_STAGE),
        _spec("dmq.list", "dead messages: a page", *_DEAD, _PLACE, _BYTES_MAX),
        _spec("dmq.summary", "dead messages, counted by where they died and of what: a page", *_DEAD, _POSITION),
        _spec(
            "dmq.redrive", "send dead messages back: a page", *_DEAD, _POSITION,
            Parameter("to", "all to this destination"),
            Parameter("leave", "destinations that nothing goes back to", Kind.TEXTS),
        ),
        _spec("dmq.discard", "settle dead messages for good: a page", *_DEAD, _POSITION),
    )
}  # fmt: skip
