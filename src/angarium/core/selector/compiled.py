"""One selector as one Python function: the fast way to ask one selector about many messages.

The source that is generated holds nothing of the selector's text. Names, literals and helpers are constants k0, k1, …
bound beside it; values of the message are variables n0, n1, …; the rest are words of this module. A name is looked up
when it is first needed, and not again where every way to that point has looked it up.

Where a name is compared with a literal, which is nearly always, the test is inline: Python's own comparison behind a
check of the type. It is right wherever it agrees with Java's promotion, that is for literals below 2**53; everything
else goes through `values`.
"""
from collections.abc import Callable, Iterable
from typing import cast

from angarium.core.selector.closures import is_large, making_function, weighing
from angarium.core.selector.fields import Fields
from angarium.core.selector.normal import Absent, All, Any, Compare, Constant, Goal, OneOf, Resembles, Term, normalising
from angarium.core.selector.pace import Pace, Portions, finished
from angarium.core.selector.syntax import Approximate, Arithmetic, Boolean, Exact, Name, Selector, Sign, Text, Value
from angarium.core.selector.values import CALCULATE, COMPARE, NUMERIC, SAFE_MAX, SELECTABLE, VALUES, calculate, sign

_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SOURCE = """
def match(fields):
    get = fields.get
    return {goal}

def match_batch(messages):
    found = []
    append = found.append
    for fields in messages:
        get = fields.get
        append({goal})
    return found
"""


class CompiledSelector:
    __slots__ = ("is_large", "match", "match_batch", "weight")

    def __init__(
        self, match: Callable[[Fields], bool], match_batch: Callable[[Iterable[Fields]], list[bool]], weight: int,
        *, is_large: bool,
    ) -> None:  # fmt: skip
        self.match = match
        self.match_batch = match_batch  # in the order of the messages
        self.weight = weight  # what an evaluation takes, in comparisons
        self.is_large = is_large  # too large to be looked through again at one go


def compile_selector(selector: Selector) -> CompiledSelector:
    return finished(making(selector, Pace()))


def making(selector: Selector, pace: Pace) -> Portions[CompiledSelector]:
    wanted = yield from normalising(selector.condition, pace)
    weight = yield from weighing(wanted, pace)
    if is_large(wanted):
        match = yield from making_function(wanted, pace)
        return CompiledSelector(match, lambda messages: [match(fields) for fields in messages], weight, is_large=True)
    writer = _Writer()
    goal = writer.goal(wanted)
    namespace: dict[str, object] = {**writer.constants, "__builtins__": {}}
    exec(compile(_SOURCE.format(goal=goal), "<selector>", "exec"), namespace)
    return CompiledSelector(
        cast("Callable[[Fields], bool]", namespace["match"]),
        cast("Callable[[Iterable[Fields]], list[bool]]", namespace["match_batch"]), weight, is_large=False,
    )  # fmt: skip


class _Writer:
    """Each method returns an expression; `_known` are the names that have been looked up once it is evaluated."""

    def __init__(self) -> None:
        self.constants: dict[str, object] = {
            "SELECTABLE": SELECTABLE, "VALUES": VALUES, "NUMERIC": NUMERIC, "STR": str,
        }  # fmt: skip
        self._variables: dict[str, str] = {}
        self._known: dict[str, None] = {}  # in the order in which they became known

    def goal(self, goal: Goal) -> str:
        match goal:
            case All(items):
                return self._joined(items, " and ")
            case Any(items):
                return self._joined(items, " or ")
            case Absent(name, wanted):
                return f"{self._load(name)}.__class__ {'not in' if wanted else 'in'} SELECTABLE"
            case OneOf(name, texts, wanted):
                return self._of_class(Name(name), "is STR", f"{{}} in {self._constant(texts)}", wanted)
            case Resembles(name, pattern, wanted):
                test = f"{self._constant(pattern.matches)}({{}})"
                if pattern.only_prefix:
                    test = f"{{}}.startswith({self._constant(pattern.prefix)})"
                return self._of_class(Name(name), "is STR", test, wanted)
            case Compare(operator, left, right, wanted):
                return self._compare(operator, left, right, wanted)

    def _joined(self, items: tuple[Goal, ...], word: str) -> str:
        if not items:
            return str(word == " and ")
        parts: list[str] = []
        sure = 0
        for item in items:
            part = self.goal(item)
            parts.append(f"({part})" if isinstance(item, All | Any) else part)
            if len(parts) == 1:
                sure = len(self._known)  # only the first item is evaluated in any case
        while len(self._known) > sure:
            self._known.popitem()
        return word.join(parts)

    def _of_class(self, subject: Term, kind: str, test: str, wanted: bool) -> str:
        """The test, for values of the kind; or that it fails, for all values but NULL."""
        first = self._term(subject)
        variable = "result"
        if isinstance(subject, Name):
            variable = self._variables[subject.name]
        else:
            first = f"(result := {first})"
        if wanted:
            return f"({first}.__class__ {kind} and {test.format(variable)})"
        return f"({first}.__class__ in VALUES and not ({variable}.__class__ {kind} and {test.format(variable)}))"

    def _compare(self, operator: str, left: Term, right: Term, wanted: bool) -> str:
        literal = right.value if isinstance(right, Constant) else None
        if isinstance(left, Name) and isinstance(literal, bool):
            return self._compare_boolean(left.name, literal == (operator == "="), wanted)
        if isinstance(left, Name) and isinstance(literal, str):
            if operator == "=" and wanted:  # nothing else is equal to a str
                return f"{self._load(left.name)} == {self._constant(literal)}"
            return self._of_class(left, "is STR", f"{{}} {_PYTHON[operator]} {self._constant(literal)}", wanted)
        if isinstance(literal, int | float) and not isinstance(literal, bool) and -SAFE_MAX < literal < SAFE_MAX:
            return self._of_class(left, "in NUMERIC", f"{{}} {_PYTHON[operator]} {self._constant(literal)}", wanted)
        return f"{self._constant(COMPARE[operator])}({self._term(left)}, {self._term(right)}) is {wanted}"

    def _compare_boolean(self, name: str, literal: bool, wanted: bool) -> str:
        load = self._load(name)
        if wanted:
            return f"{load} is {literal}"
        return f"({load} is not {literal} and {self._variables[name]}.__class__ in SELECTABLE)"

    def _term(self, term: Term | Value) -> str:
        match term:
            case Constant(value) | Exact(value) | Approximate(value) | Text(value) | Boolean(value):
                return self._constant(value)
            case Name(name):
                return self._load(name)
            case Sign(negative, operand):
                return f"{self._constant(sign)}({negative}, {self._term(operand)})"
            case Arithmetic(first, rest):
                values = ", ".join([self._term(first), *(self._term(operand) for _, operand in rest)])
                operators = tuple(operator for operator, _ in rest)
                if len(operators) == 1:
                    return f"{self._constant(CALCULATE[operators[0]])}({values})"
                return f"{self._constant(calculate)}({self._constant(operators)}, ({values}))"

    def _load(self, name: str) -> str:
        variable = self._variables.setdefault(name, f"n{len(self._variables)}")
        if name in self._known:
            return variable
        self._known[name] = None
        return f"({variable} := get({self._constant(name)}))"

    def _constant(self, value: object) -> str:
        constant = f"k{len(self.constants)}"
        self.constants[constant] = value
        return constant
