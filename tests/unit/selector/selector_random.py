"""Random selectors and messages that meet: few names, few values, and those at the edges of every rule."""
from random import Random

NAMES = ("a", "b", "c", "d", "JMSPriority", "JMSType")
NUMBERS = (
    "0", "1", "2", "3", "5", "7", "-1", "-2", "0.0", "-0.0", "0.5", "1.0", "2.5", "1e308", "-1e308", "5e-324", "0x10",
    "017", "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740992.0", "-9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9.223372036854775807e18",
)  # fmt: skip
TEXTS = ("", "a", "ab", "abc", "b", "a%", "a_c", "_", "%", "x'y", "\U0010ffff", "a\U0010ffff", "ab\0", "é")
VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, 2, 3, 5, 7, -1, -2, 0.0, -0.0, 0.5, 1.0, 2.5, 16, 15, float("nan"), float("inf"),
    float("-inf"), 1e308, 5e-324, 2**53 - 1, 2**53, 2**53 + 1, float(2**53), -(2**53) - 1, 2**63 - 1, -(2**63), 2**63,
    2**64, 10**400, -(10**400), float(2**63), b"a", b"", *TEXTS, "abcabc", "bca", "aab",
)  # fmt: skip
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def random_message(random: Random) -> dict[str, object]:
    return {name: random.choice(VALUES) for name in NAMES if random.random() < 0.8}


def random_selector(random: Random, depth: int = 3) -> str:
    if depth == 0 or random.random() < 0.3:
        return _predicate(random)
    kind = random.choice(("AND", "AND", "AND", "OR", "OR", "NOT", "()"))
    if kind == "NOT":
        return f"NOT ({random_selector(random, depth - 1)})"
    if kind == "()":
        return f"({random_selector(random, depth - 1)})"
    items = [random_selector(random, depth - 1) for _ in range(random.randint(2, 4))]
    return f" {kind} ".join(f"({item})" for item in items)


def _predicate(random: Random) -> str:
    name, negated = random.choice(NAMES), random.choice(("", "", "NOT "))
    match random.randrange(12):
        case 0:
            return name
        case 1:
            return random.choice(("TRUE", "FALSE"))
        case 2:
            return f"{name} IS {negated}NULL"
        case 3:
            texts = ", ".join(_quoted(random.choice(TEXTS)) for _ in range(random.randint(1, 4)))
            return f"{name} {negated}IN ({texts})"
        case 4 | 5:
            return f"{name} {negated}LIKE {_pattern(random)}"
        case 6:
            low, high = random.choice(NUMBERS), random.choice(NUMBERS)
            return f"{name} {negated}BETWEEN {low} AND {high}"
        case 7:
            return f"{_value(random)} {negated}BETWEEN {_value(random)} AND {_value(random)}"
        case 8:
            return f"{_value(random)} {random.choice(_COMPARISONS)} {_value(random)}"
        case 9:
            literal = random.choice((_quoted(random.choice(TEXTS)), "TRUE", "FALSE", "b"))
            sides = [name, literal]
            random.shuffle(sides)
            return f"{sides[0]} {random.choice(('=', '<>'))} {sides[1]}"
        case _:
            sides = [name, random.choice(NUMBERS)]
            random.shuffle(sides)
            return f"{sides[0]} {random.choice(_COMPARISONS)} {sides[1]}"


def _value(random: Random, depth: int = 2) -> str:
    """An arithmetic expression."""
    if depth == 0 or random.random() < 0.4:
        return random.choice((random.choice(NAMES), random.choice(NUMBERS)))
    if random.random() < 0.2:
        return f"{random.choice('+-')} {_value(random, depth - 1)}"
    parts = [_value(random, depth - 1)]
    for _ in range(random.randint(1, 2)):
        operand = _value(random, depth - 1)
        parts += [random.choice("+-*/"), f"({operand})" if random.random() < 0.5 else operand]
    return " ".join(parts)


def _pattern(random: Random) -> str:
    pieces = random.choices(("a", "b", "c", "ab", "%", "%", "_", "\U0010ffff", "'"), k=random.randint(0, 5))
    if random.random() < 0.6:
        return _quoted("".join(pieces))
    escape = random.choice(("!", "a", "%", "_"))
    escaped = [piece if escape not in piece else escape + escape for piece in pieces]
    escaped.insert(random.randint(0, len(escaped)), escape + random.choice("%_"))
    return f"{_quoted(''.join(escaped))} ESCAPE {_quoted(escape)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
