"""What a selector says: its tree, without what its text looked like.

Parentheses, white space and the case of keywords are gone; a chain of AND, OR, + - or * / is one node however long,
so the depth of a tree is that of its meaning, and at most `DEPTH_MAX`: whoever walks it may recurse.

Equal trees mean the same selector. Literals of different types are different classes, because in Python 1 == 1.0 ==
True. They are no dataclasses, and unknown to the garbage collector, which would look at ten thousands of them again and
again while a large selector is read: a tree has no cycles.
"""
from dataclasses import dataclass, field

import msgspec

from angarium.core.errors import Rejected

TEXT_CHARACTERS_MAX = 1 << 19  # 10,000 terms have some 200,000
TOKENS_MAX = 1 << 16  # names, literals and signs: 10,000 terms of six each. To read so many takes a quarter of a second
DEPTH_MAX = 50  # far above what people write; the compiler's Python must stay below CPython's 200 nested parentheses
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

HEADER_NAMES = frozenset(
    {
        "JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType",
        "JMSXGroupID", "JMSXGroupSeq",
    }
)
_EXCERPT_CHARACTERS = 60


class SelectorError(Rejected):
    """The text is no selector; `position` (from 0) is the first character that cannot be meant."""

    CODE = "bad-selector"

    def __init__(self, problem: str, text: str, position: int) -> None:
        low = max(0, position - _EXCERPT_CHARACTERS // 2)
        line = "".join(c if c.isprintable() else " " for c in text[low : low + _EXCERPT_CHARACTERS])
        super().__init__(
            self.CODE, f"selector, column {position + 1:,}: {problem}\n    {line}\n    {' ' * (position - low)}^"
        )
        self.problem = problem
        self.position = position


class Exact(msgspec.Struct, frozen=True, gc=False):
    value: int  # a Java long


class Approximate(msgspec.Struct, frozen=True, gc=False):
    value: float  # a Java double, finite and not negative zero


class Text(msgspec.Struct, frozen=True, gc=False):
    value: str


class Boolean(msgspec.Struct, frozen=True, gc=False):
    value: bool


class Name(msgspec.Struct, frozen=True, gc=False):
    name: str


class Sign(msgspec.Struct, frozen=True, gc=False):
    """Unary + or -. Unary + is not nothing: it asks for a number."""

    negative: bool
    operand: "Value"


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    """first, then each operator and operand from left to right; all operators are of one precedence."""

    first: "Value"
    rest: tuple[tuple[str, "Value"], ...]


class Comparison(msgspec.Struct, frozen=True, gc=False):
    operator: str  # = <> < <= > >=
    left: "Value"
    right: "Value"


class Between(msgspec.Struct, frozen=True, gc=False):
    operand: "Value"
    low: "Value"
    high: "Value"
    negated: bool


class In(msgspec.Struct, frozen=True, gc=False):
    name: str
    texts: frozenset[str]
    negated: bool


class Like(msgspec.Struct, frozen=True, gc=False):
    name: str
    pattern: str
    escape: str | None
    negated: bool


class IsNull(msgspec.Struct, frozen=True, gc=False):
    name: str
    negated: bool


class Not(msgspec.Struct, frozen=True, gc=False):
    operand: "Condition"


class And(msgspec.Struct, frozen=True, gc=False):
    items: tuple["Condition", ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    items: tuple["Condition", ...]


Value = Exact | Approximate | Text | Boolean | Name | Sign | Arithmetic
Condition = Name | Boolean | Comparison | Between | In | Like | IsNull | Not | And | Or
Node = Value | Condition


@dataclass(frozen=True, slots=True)
class Selector:
    condition: Condition
    names: frozenset[str]  # every identifier, header fields included
    text: str = field(compare=False)
