"""What a selector says: its tree, without what its text looked like.

Parentheses, white space and the case of keywords are gone; a chain of AND, OR, + - or * / is one node however long,
so the depth of a tree is that of its meaning, and at most `DEPTH_MAX`: whoever walks it may recurse.

Equal trees mean the same selector. Literals of different types are different classes, because in Python 1 == 1.0 ==
True.
"""
from dataclasses import dataclass, field

from angarium.core.errors import Rejected

TEXT_CHARACTERS_MAX = 1 << 18  # 10,000 terms have some 200,000; compiling as many takes about half a second
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


@dataclass(frozen=True, slots=True)
class Exact:
    value: int  # a Java long


@dataclass(frozen=True, slots=True)
class Approximate:
    value: float  # a Java double, finite and not negative zero


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Boolean:
    value: bool


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary + or -. Unary + is not nothing: it asks for a number."""

    negative: bool
    operand: "Value"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """first, then each operator and operand from left to right; all operators are of one precedence."""

    first: "Value"
    rest: tuple[tuple[str, "Value"], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # = <> < <= > >=
    left: "Value"
    right: "Value"


@dataclass(frozen=True, slots=True)
class Between:
    operand: "Value"
    low: "Value"
    high: "Value"
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    name: str
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    name: str
    pattern: str
    escape: str | None
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    name: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    items: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple["Condition", ...]


Value = Exact | Approximate | Text | Boolean | Name | Sign | Arithmetic
Condition = Name | Boolean | Comparison | Between | In | Like | IsNull | Not | And | Or
Node = Value | Condition


@dataclass(frozen=True, slots=True)
class Selector:
    condition: Condition
    names: frozenset[str]  # every identifier, header fields included
    text: str = field(compare=False)

    @property
    def header_names(self) -> frozenset[str]:
        """The header fields that it reads; mostly none, and then a message's properties are all it needs."""
        return self.names & HEADER_NAMES
