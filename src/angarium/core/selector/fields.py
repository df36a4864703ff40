"""How a message shows itself to a selector: one method, asked only for the names that the selector has.

A dict of properties is `Fields` already, and serves wherever a selector names no header field: then nobody looks at a
header. For the others, `WithHeaders` answers the six header fields of 3.8.1.1, and the message group, from a function
of the caller's and everything else from the properties, so that no producer can pass off a property as a header field:

    JMSDeliveryMode   'PERSISTENT' or 'NON_PERSISTENT'   (str)
    JMSPriority       0 to 9                             (int)
    JMSTimestamp      milliseconds since 1970            (int)
    JMSMessageID, JMSCorrelationID, JMSType              (str, or None where there is none)
    JMSXGroupID, JMSXGroupSeq                            (str, int, or None where there is none)

Other names with JMSX and JMS_ are properties like any other. Values of exactly the types str, bool, int and float can
be seen; everything else, bytes too, is as absent as a property that was never set.
"""
from collections.abc import Callable
from typing import Protocol

from angarium.core.selector.syntax import HEADER_NAMES


class Fields(Protocol):
    def get(self, name: str, /) -> object: ...


class WithHeaders:
    __slots__ = ("_header", "_properties")

    def __init__(self, properties: Fields, header: Callable[[str], object]) -> None:
        self._properties = properties
        self._header = header

    def get(self, name: str, /) -> object:
        return self._header(name) if name in HEADER_NAMES else self._properties.get(name)
