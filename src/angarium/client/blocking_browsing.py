"""Looking at the messages of a queue without async: see `client.browsing`."""
import asyncio
import io
from collections.abc import Callable

from angarium.client import browsing
from angarium.client.blocking_consumer import Message
from angarium.client.blocking_streams import open_file
from angarium.client.log import Request
from angarium.client.stream_reading import IncomingStream


class Browser(browsing.Browser):
    """In the loop's thread; its messages are used from any."""

    message_type = Message

    def __init__(
        self, request: Request, destination: str, selector: str, open_stream: browsing.OpenStream
    ) -> None:
        super().__init__(request, destination, selector, open_stream)
        self._loop = asyncio.get_running_loop()

    def open_file(self, open_stream: Callable[[], IncomingStream]) -> io.BufferedReader:
        return open_file(open_stream, self._loop)

    def settle_late(self, message: Message, outcome: int) -> None:
        self._refuse(message)
