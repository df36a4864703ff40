"""A listener without asyncio: a thread that calls back for each message, one after the other."""
import threading
from collections.abc import Callable
from typing import Self

from angarium.client.blocking_consumer import Consumer
from angarium.client.message import Message
from angarium.core.errors import LocalProtocolError

POLL_S = 0.2  # how long a close may wait for a thread that has nothing to do


class Listener:
    """Made by `Session.listen`; use it with `with`, or close it yourself. As `client.listening` has it; an error of the
    callback goes to `threading.excepthook`."""

    def __init__(self, consumer: Consumer, callback: Callable[[Message], None], turn: threading.Lock) -> None:
        self.consumer = consumer
        self._turn = turn  # one callback at a time in a session
        self.failures = 0  # callbacks that raised
        self._callback = callback
        self._error: BaseException | None = None  # what the consumer ended with
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="angarium-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                message = self.consumer.receive(timeout_s=POLL_S)
                if message is not None:
                    with self._turn:
                        self._call(message)
                elif self.consumer.is_ended:
                    return
        except Exception as error:
            self._error = error

    def _call(self, message: Message) -> None:
        if message.lost:  # while it waited for its turn
            return
        try:
            self._callback(message)
        except Exception as error:
            self.failures += 1
            self.consumer.failed(message)
            arguments = (type(error), error, error.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(arguments))
        else:
            self.consumer.done()

    def close(self) -> None:
        """Let the callback that runs come to its end, then close the consumer. Raises what the consumer ended with."""
        self.check_outside()
        self.stop()
        self.consumer.close()
        if self._error is not None:
            raise self._error

    def check_outside(self) -> None:
        """Raise if it is the callback that asks, before anything has changed."""
        if threading.current_thread() is self._thread:
            raise LocalProtocolError(
                "a callback cannot close its own listener, session or connection: it would wait for itself"
            )

    def stop(self, timeout_s: float | None = None) -> None:
        """No more callbacks; wait for the one that runs."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
