"""Which names properties may have: those that a selector can refer to.

The rules are the specification's for identifiers (Jakarta Messaging 3.1, 3.5.1 and 3.8.1.1): a letter, `_` or `$`, then
also digits; no word of the selector's language, in any case. `JMSX` and `JMS_` are reserved prefixes (3.5.9), and what
else begins with `JMS` is a header field to a selector (3.8.1.1): none of them is a name.
"""
from angarium.core.errors import Rejected

NAME_CHARACTERS_MAX = 255
RESERVED = frozenset({
    "NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE",
})  # fmt: skip
_CHECKED_MAX = 4_096
_checked: set[str] = set()  # names that were found good: programs use a few, again and again


def check_property_name(name: object) -> None:
    """Raise `Rejected` with code `bad-property` if no property may have this name."""
    if name in _checked:
        return
    if not isinstance(name, str):
        raise Rejected("bad-property", f"property {name!r}: a name is a str, not {type(name).__name__}")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.replace("$", "_").isidentifier():
        raise Rejected(
            "bad-property",
            f"property {name[:NAME_CHARACTERS_MAX]!r}: a name is up to {NAME_CHARACTERS_MAX} letters, digits, '_' and "
            "'$', and does not begin with a digit",
        )
    if name.upper() in RESERVED:
        raise Rejected("bad-property", f"property {name!r}: this is a word of the selector language; use another name")
    if name in ("JMSXGroupID", "JMSXGroupSeq"):
        raise Rejected("bad-property", f"property {name!r}: send with group=... and group_sequence=... instead")
    if name.startswith("JMS"):
        raise Rejected(
            "bad-property", f"property {name!r}: names in JMS are header fields, or reserved; use another name"
        )
    if len(_checked) < _CHECKED_MAX:
        _checked.add(name)
