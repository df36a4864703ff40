"""Typed values of properties, map bodies and stream bodies, and how one type is read as another.

The specification's table of conversions (Jakarta Messaging 3.1, 3.5.4), for values as Python has them. Python has one
int and one float, so a number's type is the narrowest one that holds its value: 5 is a byte, 300 a short, 1.5 a float,
0.1 a double. What the table allows for that type is allowed. So a value that was written as a long may be read as an
int where it fits: more than in Java, never with a loss.

    is, read as   boolean byte short int long float double string bytes
    boolean          x                                       x
    byte                   x    x    x    x                  x
    short                       x    x    x                  x
    int                              x    x                  x
    long                                  x                  x
    float                                       x     x      x
    double                                            x      x
    string           x     x    x    x    x     x     x      x
    bytes                                                           x

Whatever the table does not allow raises `Rejected` with code `bad-conversion`; a string (or nothing) that is no such
number raises it with code `bad-number`; reading beyond the end of a stream with code `end-of-stream`.
"""
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from angarium.core.errors import LocalProtocolError, Rejected

Value = bool | int | float | str | bytes | None
PLAIN = frozenset({bool, int, float, str, bytes, type(None)})

T = TypeVar("T")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_SINGLE = struct.Struct("<f")
_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}


def to_boolean(value: Value, what: str) -> bool:
    """As a boolean: a string is true if it is "true" in any case; nothing is false."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    raise _refused(value, what, "boolean")


def to_integer(value: Value, what: str, kind: str) -> int:
    bits = _BITS[kind]
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        number = int(value) if len(value) <= 20 else 1 << 64  # longer ones fit nothing, and cost time
    elif value is None or isinstance(value, str):
        raise Rejected("bad-number", f"{what} is {value!r}, which is no number")
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _refused(value, what, kind)
    if not -1 << (bits - 1) <= number < 1 << (bits - 1):
        code = "bad-number" if isinstance(value, str) else "bad-conversion"
        raise Rejected(code, f"{what} is {value!r}, which does not fit a {kind} of {bits} bits")
    return number


def to_double(value: Value, what: str) -> float:
    if isinstance(value, float):
        return value
    if value is None or isinstance(value, str):
        try:
            if value is not None and "_" not in value:
                return float(value)
        except ValueError:
            pass
        raise Rejected("bad-number", f"{what} is {value!r}, which is no number")
    raise _refused(value, what, "double")


def to_float(value: Value, what: str) -> float:
    """A number of 32 bits; a string is rounded to one."""
    number = to_double(value, what)
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        single = math.copysign(math.inf, number)
    if isinstance(value, float) and single != number and not math.isnan(number):
        raise Rejected("bad-conversion", f"{what} is {value!r}, which needs a double: read it as that")
    return single


def to_string(value: Value, what: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise _refused(value, what, "string")


def to_bytes(value: Value, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise _refused(value, what, "bytes")


def _refused(value: Value, what: str, kind: str) -> Rejected:
    return Rejected("bad-conversion", f"{what} is a {type(value).__name__}, which cannot be read as {kind}")


class TypedMap(dict[str, Any]):
    """Names and values of a received message: a dict that cannot be changed, read by type if wanted.

    Each `get_...` takes a default for a name that is not there; without one, nothing is converted as the table says.
    To send a changed one on, make a dict of it.
    """

    __slots__ = ()

    def get_boolean(self, name: str, *default: bool) -> bool:
        return default[0] if default and name not in self else to_boolean(self.get(name), repr(name))

    def get_byte(self, name: str, *default: int) -> int:
        return self._integer(name, default, "byte")

    def get_short(self, name: str, *default: int) -> int:
        return self._integer(name, default, "short")

    def get_int(self, name: str, *default: int) -> int:
        return self._integer(name, default, "int")

    def get_long(self, name: str, *default: int) -> int:
        return self._integer(name, default, "long")

    def get_float(self, name: str, *default: float) -> float:
        return default[0] if default and name not in self else to_float(self.get(name), repr(name))

    def get_double(self, name: str, *default: float) -> float:
        return default[0] if default and name not in self else to_double(self.get(name), repr(name))

    def get_string(self, name: str, *default: str) -> str | None:
        return default[0] if default and name not in self else to_string(self.get(name), repr(name))

    def get_bytes(self, name: str, *default: bytes) -> bytes | None:
        return default[0] if default and name not in self else to_bytes(self.get(name), repr(name))

    def _integer(self, name: str, default: tuple[int, ...], kind: str) -> int:
        return default[0] if default and name not in self else to_integer(self.get(name), repr(name), kind)

    def _read_only(self, *_: object, **__: object) -> NoReturn:
        raise LocalProtocolError("a received message cannot be changed; make a dict of this and send that")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _read_only


class TypedStream(Sequence[Any]):
    """The values of a stream body, in order: a sequence, and a reader that goes from one to the next.

    A read that fails leaves the reader where it was, so that the value may be read as something else.
    """

    __slots__ = ("_at", "_values")

    def __init__(self, values: Iterable[Value]) -> None:
        self._values = tuple(values)
        self._at = 0

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStream | tuple | list) and self._values == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TypedStream({list(self._values)!r})"

    def reset(self) -> None:
        """Read from the beginning again."""
        self._at = 0

    def read(self) -> Any:
        """The next value as it is."""
        return self._read(lambda value, _: value)

    def read_boolean(self) -> bool:
        return self._read(to_boolean)

    def read_byte(self) -> int:
        return self._read(lambda value, what: to_integer(value, what, "byte"))

    def read_short(self) -> int:
        return self._read(lambda value, what: to_integer(value, what, "short"))

    def read_int(self) -> int:
        return self._read(lambda value, what: to_integer(value, what, "int"))

    def read_long(self) -> int:
        return self._read(lambda value, what: to_integer(value, what, "long"))

    def read_float(self) -> float:
        return self._read(to_float)

    def read_double(self) -> float:
        return self._read(to_double)

    def read_string(self) -> str | None:
        return self._read(to_string)

    def read_bytes(self) -> bytes | None:
        return self._read(to_bytes)

    def _read(self, convert: Callable[[Value, str], T]) -> T:
        if self._at >= len(self._values):
            raise Rejected("end-of-stream", f"the stream has {len(self._values)} values, and all have been read")
        value = convert(self._values[self._at], f"value {self._at} of the stream")
        self._at += 1
        return value
