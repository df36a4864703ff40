"""What the client's machine tells a session."""
from angarium.core.client import events
from angarium.core.client.stream_events import StreamNotice

SessionCommand = (
    events.SessionReady | events.SessionEnded | events.Synced | events.MessagesArrived | events.ConsumerReady
    | events.MessagesDropped | events.PositionsLost | events.SettlementsLost | events.Recovered | events.ConsumerEnded
    | events.Committed | events.Aborted | events.WatchFound | events.WatchEnded | StreamNotice
)  # fmt: skip
