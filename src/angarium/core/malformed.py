"""What is raised for bytes that nobody sane has encoded: by msgspec, by a text in them that is not UTF-8, by nesting
without end. Whoever decodes what came from outside, or lay on a disk, expects all of it."""
import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
