"""The bytes of a batch: where everything lies in it. The layout is columnar and little-endian:

     0  4s  magic b"ABT1"
     4  u32 crc32 of everything that follows
     8  u32 length of the whole batch in bytes
    12  u32 count of messages, at least 1, at most COUNT_MAX
    16  16s producer (a global id)
    32  u64 sequence of the first message; the others follow without gaps, unless there is a column SEQUENCE
    40  i64 timestamp, milliseconds since 1970, UTC
    48  u32 columns: a bit for each optional column that is present, and the announcements
    52  u32 where the bodies start
    56  u64 zero
    64  i32 offsets[count + 1] of the bodies, from where they start
        the optional columns in the order of their bits, each starting at a multiple of 8:
          1 PRIORITY    u8[count]
          2 EXPIRY      i64[count], milliseconds since 1970, 0 is never
          4 HEADERS     i32[count + 1] offsets, then one MessagePack map or nothing for each message
          8 PROPERTIES  the same
         16 SEQUENCE    i64[count], ascending, the first as in the header
         32 DUE         i64[count], milliseconds since 1970 before which it is not delivered, 0 is at once
        the bodies, one after the other

An announcement is a bit without a column: "a header of some message says ...". Where it is missing, nobody looks for
that header; nobody checks that it is there. A part of a batch keeps the announcements of the whole.
"""
import struct
import sys
from enum import IntFlag

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("angarium's batches are little-endian and so must the machine be")

MAGIC = b"ABT1"
HEADER = struct.Struct("<4sIII16sQqIIQ")
AFTER_CRC = struct.Struct("<II16sQqIIQ")
SUM = struct.Struct("<4sI")
OFFSET_PAIR = struct.Struct("<ii")  # two neighbours of a column of offsets
PRIORITY_DEFAULT = 4
SEQUENCE_MAX = (1 << 62) - 1
PRIORITY_MAX = 9
COUNT_MAX = 65_536  # messages in a batch: some tenths of a second for whoever has to look at each


class Columns(IntFlag):
    PRIORITY = 1
    EXPIRY = 2
    HEADERS = 4
    PROPERTIES = 8
    SEQUENCE = 16
    DUE = 32
    # announcements: there is a header of this name
    GROUP = 1 << 16  # `group`
    DEDUPLICATION = 1 << 17  # `deduplication_id`
    KEY = 1 << 18  # `last_value_key`
    STREAM = 1 << 19  # `stream`: the body lies in a stream


PRIORITY, EXPIRY, HEADERS, PROPERTIES, SEQUENCE, DUE = (1, 2, 4, 8, 16, 32)  # an enumeration's own are slow
IN_ORDER = (PRIORITY, EXPIRY, HEADERS, PROPERTIES, SEQUENCE, DUE)
VARIABLE = HEADERS | PROPERTIES
ANNOUNCEMENTS = int(Columns.GROUP | Columns.DEDUPLICATION | Columns.KEY | Columns.STREAM)
KNOWN = sum(IN_ORDER) | ANNOUNCEMENTS
# Of what has these a broker stores something by itself for each message.
SINGLE_ANNOUNCEMENTS = int(Columns.DEDUPLICATION | Columns.KEY | Columns.STREAM)
