"""What one connection has waiting here, in bytes of the wire: its sessions share one account.

Frames are small and may not be: a thousand of them are nothing, or gigabytes. So what is kept is counted by what it
weighs, and one byte past the limit ends the connection that sent it.
"""
from angarium.core.errors import RemoteProtocolError


class WaitingBytes:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.total_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Raises RemoteProtocolError, and counts nothing, if that is too much."""
        total_bytes = self.total_bytes + size_bytes
        if total_bytes > self._bytes_max:
            reason = (
                f"{total_bytes:,} bytes would wait for destinations to be found and requests to be answered: the most "
                f"is waiting_bytes_max {self._bytes_max:,}; wait for answers before you send more"
            )
            raise RemoteProtocolError("too-much-waiting", reason)
        self.total_bytes = total_bytes

    def remove(self, size_bytes: int) -> None:
        self.total_bytes -= size_bytes
