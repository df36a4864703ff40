"""What the halves of a session, each in its own module, need of the whole."""
from abc import ABC, abstractmethod

from angarium.client.stream_desk import StreamDesk


class SessionPart(ABC):
    streams: StreamDesk

    @abstractmethod
    def check_usable(self) -> None:
        """Raise why the session takes no more requests, if so."""
