"""From text to tokens (Jakarta Messaging 3.1, 3.8.1.1: literals, identifiers, white space).

Numbers are Java's, underscores, binary, octal, hexadecimal and hexadecimal floating point included, with two readings
of ours. A whole number is a long with or without L: Java's int would overflow where the specification promises
long. An F rounds to single precision, as in Java, and is a double from there on.
"""
import re
import struct
import unicodedata

import msgspec

from angarium.core.selector.pace import Pace, Portions, finished
from angarium.core.selector.syntax import LONG_MAX, TEXT_CHARACTERS_MAX, TOKENS_MAX, SelectorError

KEYWORDS = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})

_SPACE = re.compile(r"[ \t\f\r\n]*")
_SYMBOL = re.compile(r"<>|<=|>=|[=<>()+\-*/,]")
_STRING = re.compile(r"'((?:[^']|'')*+)'")
_ASCII_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_DIGITS = r"[0-9](?:[0-9_]*[0-9])?"
_HEX = r"[0-9a-fA-F](?:[0-9a-fA-F_]*[0-9a-fA-F])?"
_APPROXIMATE = re.compile(
    rf"(?:(?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?|{_DIGITS}[eE][+-]?{_DIGITS})[fFdD]?"
    rf"|{_DIGITS}[fFdD]"
)
_HEX_APPROXIMATE = re.compile(rf"0[xX](?:{_HEX}\.?(?:{_HEX})?|\.{_HEX})[pP][+-]?{_DIGITS}[fFdD]?")
_EXACT = re.compile(rf"(?:0[xX](?P<hex>{_HEX})|0[bB](?P<binary>[01](?:[01_]*[01])?)|(?P<decimal>{_DIGITS}))[lL]?")
_LONG_BITS = 64
_DESCRIBED_CHARACTERS = 40


class Token(msgspec.Struct, gc=False):
    kind: str  # a symbol, a keyword, or one of "name", "number", "text", "end"
    position: int
    value: object = None  # of a name, number or text

    def describe(self) -> str:
        if self.kind == "end":
            return "the end of the selector"
        return self.kind if self.value is None else f"{self.kind} {str(self.value)[:_DESCRIBED_CHARACTERS]!r}"


def tokens(text: str) -> list[Token]:
    """All tokens, the last one "end"; raise SelectorError where none begins."""
    return finished(lexing(text, Pace()))


def lexing(text: str, pace: Pace) -> Portions[list[Token]]:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise SelectorError(
            f"{len(text):,} characters exceed the maximum of {TEXT_CHARACTERS_MAX:,}", text, TEXT_CHARACTERS_MAX
        )
    found: list[Token] = []
    at = _SPACE.match(text).end()  # type: ignore[union-attr]  # matches the empty string
    while at < len(text):
        token, at = _token(text, at)
        found.append(token)
        if len(found) > TOKENS_MAX:
            raise SelectorError(f"more than {TOKENS_MAX:,} names, literals and signs", text, token.position)
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if pace.is_due():
            yield
    found.append(Token("end", len(text)))
    return found


def _token(text: str, at: int) -> tuple[Token, int]:
    char = text[at]
    if char in "0123456789" or (char == "." and text[at + 1 : at + 2] in tuple("0123456789")):
        return _number(text, at)
    if symbol := _SYMBOL.match(text, at):
        return Token(symbol[0], at), symbol.end()
    if char == "'":
        string = _STRING.match(text, at)
        if string is None:
            raise SelectorError("this string has no closing quote", text, at)
        return Token("text", at, string[1].replace("''", "'")), string.end()
    if _starts_name(char):
        return _word(text, at)
    hint = "; a string is in single quotes" if char == '"' else "; use <>" if text.startswith("!=", at) else ""
    raise SelectorError(f"unexpected character {char!r}{hint}", text, at)


def _word(text: str, at: int) -> tuple[Token, int]:
    ascii_word = _ASCII_WORD.match(text, at)
    end = ascii_word.end() if ascii_word else at + 1
    while end < len(text) and _continues_name(text[end]):
        end += 1
    word = text[at:end]
    keyword = word.upper()
    if keyword in KEYWORDS and word.isascii():
        return Token(keyword, at), end
    return Token("name", at, word), end


def _starts_name(char: str) -> bool:
    """Character.isJavaIdentifierStart"""
    if char.isascii():
        return char.isalpha() or char in "_$"
    category = unicodedata.category(char)
    return category[0] == "L" or category in ("Nl", "Sc", "Pc")


def _continues_name(char: str) -> bool:
    """Character.isJavaIdentifierPart"""
    if _starts_name(char):
        return True
    ignorable = char <= "\x08" or "\x0e" <= char <= "\x1b" or "\x7f" <= char <= "\x9f"
    return ignorable or unicodedata.category(char) in ("Nd", "Mc", "Mn", "Cf")


def _number(text: str, at: int) -> tuple[Token, int]:
    value: int | float
    if match := _HEX_APPROXIMATE.match(text, at) or _APPROXIMATE.match(text, at):
        value = _approximate(match[0].replace("_", ""), text, at)
    else:
        match = _EXACT.match(text, at)
        assert match is not None, "a digit starts a decimal at least"
        value = _exact(match, text, at)
    end = match.end()
    if end < len(text) and (text[end] == "." or _continues_name(text[end])):
        raise SelectorError(f"{text[end]!r} cannot follow the number {match[0]}", text, end)
    return Token("number", at, value), end


def _approximate(literal: str, text: str, at: int) -> float:
    hexadecimal = literal[:2] in ("0x", "0X")
    single = literal[-1] in "fF"
    digits = literal.rstrip("fFdD")  # an exponent is decimal, even of a hexadecimal number
    mantissa = re.split("[pP]" if hexadecimal else "[eE]", digits.removeprefix("0x").removeprefix("0X"))[0]
    try:
        value = float.fromhex(digits) if hexadecimal else float(digits)
        if single:
            value = float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:  # of fromhex and of pack
        value = float("inf")
    if value == float("inf") or (value == 0.0 and mantissa.strip("0.")):
        raise SelectorError(f"{literal} is out of the range of a {'float' if single else 'double'}", text, at)
    return value


def _exact(match: re.Match[str], text: str, at: int) -> int:
    """Up to 2**63: the parser knows whether a minus stands before it."""
    literal = match[0]
    if match["decimal"] is None:
        base, digits = (16, match["hex"]) if match["hex"] else (2, match["binary"])
    else:
        base, digits = (8 if literal[0] == "0" else 10), match["decimal"]
    digits = digits.replace("_", "").lstrip("0")
    if base == 8 and (wrong := re.search("[89]", literal)):
        problem = f"{literal} begins with 0 and is octal: it has no digit {wrong[0]}"
        raise SelectorError(problem, text, at + wrong.start())
    value = int(digits or "0", base) if len(digits) <= _LONG_BITS else 1 << _LONG_BITS
    if value > LONG_MAX + 1 if base == 10 else value >> _LONG_BITS:
        raise SelectorError(f"{literal} is out of the range of a long", text, at)
    if base != 10 and value > LONG_MAX:  # as in Java, where 0xFFFFFFFFFFFFFFFFL is -1
        value -= 1 << _LONG_BITS
    return value
