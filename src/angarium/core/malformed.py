"""The errors that decoding malformed bytes raises: msgspec's own, text that is not UTF-8, nesting that is too deep.

Catch all of them wherever bytes are decoded that came from outside or lay on a disk.
"""
import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
