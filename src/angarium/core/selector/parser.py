"""From tokens to the tree, by operator precedence, with a stack of its own: no nesting makes Python recurse.

    OR < AND < NOT < comparisons (= <> < <= > >= BETWEEN IN LIKE IS) < + - < * / < unary + -

A name or a number is pushed on `operands`; an operator first folds every operator before it that binds at least as
tightly, then waits on `operators` for what follows. What no message could make sense of is refused here (3.8.1.1: a
provider may check semantics): arithmetic on strings, an order of strings or booleans, a condition as a value, a
value as a condition, header fields that may not be selected on.
"""
from typing import cast

import msgspec

from angarium.core.selector.lexer import Token, lexing
from angarium.core.selector.like import HARD_CHARACTERS_MAX, check_pattern, hard_characters
from angarium.core.selector.pace import Pace, Portions, finished
from angarium.core.selector.syntax import (
    DEPTH_MAX,
    HEADER_NAMES,
    LONG_MAX,
    LONG_MIN,
    And,
    Approximate,
    Arithmetic,
    Between,
    Boolean,
    Comparison,
    Condition,
    Exact,
    In,
    IsNull,
    Like,
    Name,
    Node,
    Not,
    Or,
    Selector,
    SelectorError,
    Sign,
    Text,
    Value,
)  # fmt: skip

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(1, 8)
_OPEN = 0  # a parenthesis waits for its other half: nothing folds across it
_INFIX = {
    "OR": _OR, "AND": _AND, "=": _COMPARISON, "<>": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON,
    ">": _COMPARISON, ">=": _COMPARISON, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
}  # fmt: skip


class _Operator(msgspec.Struct, gc=False):
    kind: str  # "BETWEEN" waits for its AND and is then "BETWEEN AND"; a prefix is "NOT", "+1" or "-1"
    precedence: int
    position: int
    negated: bool = False


class _Chain(msgspec.Struct, gc=False):
    """An And, Or or Arithmetic that may still grow. What goes in has been checked: conditions, or numbers."""

    precedence: int
    first: Node
    rest: list[tuple[str, Node]] = []

    def node(self) -> Node:
        if self.precedence in (_SUM, _PRODUCT):
            return Arithmetic(cast("Value", self.first), tuple(cast("list[tuple[str, Value]]", self.rest)))
        items = cast("tuple[Condition, ...]", (self.first, *(node for _, node in self.rest)))
        return And(items) if self.precedence == _AND else Or(items)


class _Operand(msgspec.Struct, gc=False):
    node: Node | _Chain
    position: int
    depth: int = 1


def parse(text: str | None) -> Selector | None:
    """The selector, or None for no selector: None, an empty text or white space only (3.8.1.1)."""
    return None if text is None else finished(parsing(text, Pace()))


def parsing(text: str, pace: Pace) -> Portions[Selector | None]:
    found = yield from lexing(text, pace)
    return None if found[0].kind == "end" else (yield from _Parser(text, found).run(pace))


class _Parser:
    def __init__(self, text: str, found: list[Token]) -> None:
        self._text = text
        self._tokens = found
        self._next = 0
        self._operators: list[_Operator] = []
        self._operands: list[_Operand] = []
        self._names: set[str] = set()
        self._hard_characters = 0  # of patterns

    def run(self, pace: Pace) -> Portions[Selector]:
        while True:
            while not self._operand():
                if pace.is_due():
                    yield
            while self._postfix():
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
            token = self._take()
            if token.kind == "end":
                break
            self._infix(token)
        self._fold(_OR, token)
        if self._operators:
            raise SelectorError("this parenthesis is not closed", self._text, self._operators[-1].position)
        return Selector(self._condition(self._operands.pop()), frozenset(self._names), self._text)

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _take_if(self, kind: str) -> bool:
        if self._tokens[self._next].kind == kind:
            self._next += 1
            return True
        return False

    def _expect(self, kind: str, what: str) -> Token:
        token = self._take()
        if token.kind != kind:
            raise self._unexpected(token, what)
        return token

    def _unexpected(self, token: Token, expected: str) -> SelectorError:
        return SelectorError(f"expected {expected}, found {token.describe()}", self._text, token.position)

    def _operand(self) -> bool:
        """A prefix, an opening parenthesis, or one name or literal; whether it is that."""
        token = self._take()
        match token.kind:
            case "NOT":
                self._prefix(_Operator("NOT", _NOT, token.position))
            case "+" | "-":
                self._prefix(_Operator(token.kind + "1", _SIGN, token.position))
            case "(":
                self._operators.append(_Operator("(", _OPEN, token.position))
            case _:
                self._operands.append(_Operand(self._leaf(token), token.position))
                return True
        return False

    def _prefix(self, operator: _Operator) -> None:
        """Of three NOTs one counts, of three signs two: however many there are, few wait to be folded."""
        *_, first, second = (None, None, *self._operators[-2:])
        if first is not None and second is not None and first.precedence == second.precedence == operator.precedence:
            self._operators.pop()
            if operator.kind == "NOT":
                return
            first.kind = "+1" if first.kind == second.kind else "-1"
        self._operators.append(operator)

    def _leaf(self, token: Token) -> Node:
        value = token.value
        match token.kind, value:
            case "name", str():
                if value.startswith("JMS") and not value.startswith(("JMSX", "JMS_")) and value not in HEADER_NAMES:
                    allowed = ", ".join(sorted(HEADER_NAMES))
                    problem = f"{value[:40]} cannot be selected on; of the header fields only {allowed} can"
                    raise SelectorError(problem, self._text, token.position)
                self._names.add(value)
                return Name(value)
            case "number", float():
                return Approximate(value)
            case "number", int():
                if value > LONG_MAX and not (self._operators and self._operators[-1].kind == "-1"):
                    raise SelectorError(f"{value} is out of the range of a long", self._text, token.position)
                return Exact(value)
            case "text", str():
                return Text(value)
            case "TRUE" | "FALSE", None:
                return Boolean(token.kind == "TRUE")
            case "NULL", None:
                problem = "NULL is not a value: nothing is equal to it; use IS NULL"
                raise SelectorError(problem, self._text, token.position)
            case _:
                raise self._unexpected(token, "a name, a literal, NOT, a sign or '('")

    def _postfix(self) -> bool:
        """What needs nothing from behind it but literals: a closing parenthesis, IN, LIKE, IS NULL."""
        token = self._tokens[self._next]
        negated = token.kind == "NOT"
        kind = self._tokens[self._next + 1].kind if negated else token.kind
        if negated and kind not in ("IN", "LIKE", "BETWEEN"):
            self._next += 1
            raise self._unexpected(self._tokens[self._next], "BETWEEN, IN or LIKE after NOT")
        if kind not in (")", "IN", "LIKE", "IS"):
            return False
        self._next += 1 + negated
        if kind == ")":
            self._fold(_OR, token)
            if not self._operators:
                raise SelectorError("this parenthesis was never opened", self._text, token.position)
            self._operands[-1].position = self._operators.pop().position
            return True
        self._fold(_COMPARISON, token)
        subject = self._operands[-1]
        if not isinstance(subject.node, Name):
            raise SelectorError(f"{kind} needs a name before it", self._text, subject.position)
        name = subject.node.name
        if kind == "IN":
            subject.node = In(name, self._texts(), negated)
        elif kind == "LIKE":
            subject.node = self._like(name, negated)
        else:
            is_not = self._take_if("NOT")
            self._expect("NULL", "NULL" if is_not else "NULL or NOT NULL after IS")
            subject.node = IsNull(name, is_not)
        return True

    def _texts(self) -> frozenset[str]:
        self._expect("(", "'(' after IN")
        found: set[str] = set()
        while True:
            found.add(str(self._expect("text", "a string in the list of IN").value))
            if not self._take_if(","):
                self._expect(")", "',' or ')' in the list of IN")
                return frozenset(found)

    def _like(self, name: str, negated: bool) -> Like:
        token = self._expect("text", "a string as the pattern of LIKE")
        pattern, escape = str(token.value), None
        if self._take_if("ESCAPE"):
            character = self._expect("text", "a string of one character after ESCAPE")
            escape = str(character.value)
            if len(escape) != 1:
                raise SelectorError("ESCAPE takes a string of exactly one character", self._text, character.position)
        problem = check_pattern(pattern, escape)
        if problem is not None:
            what, index = problem
            quotes = pattern[:index].count("'")  # doubled in the text
            raise SelectorError(what, self._text, token.position + 1 + index + quotes)
        self._hard_characters += hard_characters(pattern)
        if self._hard_characters > HARD_CHARACTERS_MAX:
            what = f"patterns with % and _ of more than {HARD_CHARACTERS_MAX:,} characters in one selector"
            raise SelectorError(f"{what}; use shorter ones, or without _", self._text, token.position)
        return Like(name, pattern, escape, negated)

    def _infix(self, token: Token) -> None:
        negated = token.kind == "NOT"
        if negated:
            token = self._take()
        if token.kind == "BETWEEN":
            self._fold(_COMPARISON, token)
            self._operators.append(_Operator("BETWEEN", _COMPARISON, token.position, negated))
            return
        precedence = _INFIX.get(token.kind)
        if precedence is None:
            raise self._unexpected(token, "an operator")
        if token.kind == "AND":
            self._fold(_SUM, token)
            if self._operators and self._operators[-1].kind == "BETWEEN":
                self._operators[-1].kind = "BETWEEN AND"
                return
        self._fold(precedence, token)
        self._operators.append(_Operator(token.kind, precedence, token.position))

    def _fold(self, precedence: int, token: Token) -> None:
        """Apply the waiting operators that bind at least as tightly, up to an open parenthesis."""
        while self._operators and self._operators[-1].precedence >= precedence:
            operator = self._operators.pop()
            if operator.kind == "BETWEEN":
                raise self._unexpected(token, "AND and the upper bound of BETWEEN")
            right = self._operands.pop()
            if operator.precedence == _SIGN:
                self._operands.append(self._signed(operator, right))
            elif operator.kind == "NOT":
                self._operands.append(self._negated(operator, right))
            elif operator.precedence == _COMPARISON:
                self._operands.append(self._comparison(operator, right))
            else:
                self._grow(operator, self._operands[-1], right)

    def _signed(self, operator: _Operator, operand: _Operand) -> _Operand:
        negative = operator.kind == "-1"
        match self._number(operand):
            case Exact(value):
                node: Value = Exact(-value if negative and value != LONG_MIN else value)  # -LONG_MIN is LONG_MIN
            case Approximate(value) if value:
                node = Approximate(-value if negative else value)
            case Sign(inner, below):
                node = Sign(inner != negative, below)
            case other:
                return self._made(Sign(negative, other), operator.position, operator, operand)
        return _Operand(node, operator.position, operand.depth)

    def _negated(self, operator: _Operator, operand: _Operand) -> _Operand:
        node = self._condition(operand)
        if isinstance(node, Not):
            return _Operand(node.operand, operator.position, operand.depth - 1)
        return self._made(Not(node), operator.position, operator, operand)

    def _comparison(self, operator: _Operator, right: _Operand) -> _Operand:
        if operator.kind == "BETWEEN AND":
            low, operand = self._operands.pop(), self._operands.pop()
            between = Between(self._number(operand), self._number(low), self._number(right), operator.negated)
            return self._made(between, operand.position, operator, operand, low, right)
        left = self._operands.pop()
        check = self._value if operator.kind in ("=", "<>") else self._number
        return self._made(Comparison(operator.kind, check(left), check(right)), left.position, operator, left, right)

    def _grow(self, operator: _Operator, left: _Operand, right: _Operand) -> None:
        check = self._number if operator.precedence in (_SUM, _PRODUCT) else self._condition
        item = check(right)
        if not (isinstance(left.node, _Chain) and left.node.precedence == operator.precedence):
            left.node = _Chain(operator.precedence, check(left))
            left.depth += 1
        left.node.rest.append((operator.kind, item))
        left.depth = max(left.depth, right.depth + 1)
        self._check_depth(left.depth, operator)

    def _made(self, node: Node, position: int, operator: _Operator, *parts: _Operand) -> _Operand:
        depth = 1 + max(part.depth for part in parts)
        self._check_depth(depth, operator)
        return _Operand(node, position, depth)

    def _check_depth(self, depth: int, operator: _Operator) -> None:
        if depth > DEPTH_MAX:
            problem = f"more than {DEPTH_MAX} operations are nested in each other"
            raise SelectorError(problem, self._text, operator.position)

    def _finished(self, operand: _Operand) -> Node:
        return operand.node.node() if isinstance(operand.node, _Chain) else operand.node

    def _condition(self, operand: _Operand) -> Condition:
        node = self._finished(operand)
        if isinstance(node, Exact | Approximate | Text | Sign | Arithmetic):
            raise SelectorError("this is a value where a condition is needed", self._text, operand.position)
        return node

    def _value(self, operand: _Operand) -> Value:
        node = self._finished(operand)
        if isinstance(node, Exact | Approximate | Text | Boolean | Name | Sign | Arithmetic):
            return node
        raise SelectorError("this is a condition where a value is needed", self._text, operand.position)

    def _number(self, operand: _Operand) -> Value:
        node = self._value(operand)
        if isinstance(node, Text | Boolean):
            what = "string" if isinstance(node, Text) else "boolean"
            problem = f"this is a {what} where a number is needed; a {what} can only be compared with = and <>"
            raise SelectorError(problem, self._text, operand.position)
        return node
