"""A client connection, as far as administration knows it."""
from typing import Any, Protocol


class Answer(Protocol):
    @property
    def result(self) -> Any: ...

    @property
    def payload(self) -> bytes: ...


class Requests(Protocol):
    async def request(self, command: str, arguments: dict[str, Any]) -> Answer: ...
