"""Files of large messages, for those who lack some: read and compressed by who reads the disk, some blocks at a time.

It remembers nothing beyond what is being read. Past `ranges_max` of that a question is passed over: it is asked again.
So is one for a block that is on its way to the disk: who asks has heard of it before it was written here.
"""
from collections.abc import Callable, Sequence

from angarium.core.groups.configuration import Replica
from angarium.core.replication.events import Command, LocalFile, ReplicationSettings, SendTo
from angarium.core.replication.messages import BlocksAsk, FileBlock, FileGone
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import ReadBlocks
from angarium.core.stream.packing import PackedBlock

BLOCKS_MAX = 8  # sent for one question


class FileServer:
    """Of a primary, or a host: sends blocks of its files to those who lack them."""

    def __init__(
        self, settings: ReplicationSettings, is_coming: Callable[[bytes, int], bool], next_token: Callable[[], int]
    ) -> None:
        """`is_coming`: whether that block of that stream was given to the disk, and is not yet written."""
        self._settings = settings
        self._is_coming = is_coming
        self._next_token = next_token
        self._reading: dict[int, tuple[Replica, BlocksAsk]] = {}

    def stop(self) -> None:
        self._reading.clear()

    def ask(self, sender: Replica, message: BlocksAsk) -> list[Command]:
        if (sender, message) in self._reading.values():
            return []  # asked again, and about to be answered
        if len(self._reading) >= self._settings.ranges_max or self._is_coming(message.stream, message.first):
            return []  # it asks again
        token = -self._next_token()  # below zero: apart from those of the message manager
        self._reading[token] = (sender, message)
        count = max(0, min(message.end - message.first, BLOCKS_MAX))
        return [LocalFile(ReadBlocks(token, message.stream, message.first, count, packed=True))]

    def read(self, token: int, blocks: Sequence[Block], damage: str) -> list[Command]:
        sender, asked = self._reading.pop(token, (None, None))
        if sender is None or asked is None:
            return []
        if not blocks and damage:
            return [SendTo(sender, FileGone(asked.group, asked.epoch, asked.stream))]
        group, epoch, stream = asked.group, asked.epoch, asked.stream
        sent: list[Command] = []
        for number, block in enumerate(blocks, asked.first):
            is_packed = isinstance(block, PackedBlock)
            message = FileBlock(group, epoch, stream, number, block.crc, block.is_last, is_packed=is_packed)
            sent.append(SendTo(sender, message, block.payload))
        return sent
