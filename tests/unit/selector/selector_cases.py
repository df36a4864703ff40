"""Ask all three evaluators one question: they must agree before anybody looks at the answer."""
from collections.abc import Mapping

from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.fields import Fields
from angarium.core.selector.index import SelectorIndex
from angarium.core.selector.naive import matches
from angarium.core.selector.parser import parse


def selects(text: str, message: Fields | Mapping[str, object] | None = None) -> bool:
    selector = parse(text)
    assert selector is not None, "the text is empty"
    fields: Fields = {} if message is None else message
    compiled = compile_selector(selector)
    index = SelectorIndex[str]()
    index.add("key", selector)
    answers = {
        "naive": matches(selector, fields),
        "compiled": compiled.match(fields),
        "batch": compiled.match_batch([fields])[0],
        "index": index.match(fields) == ["key"],
    }
    assert len(set(answers.values())) == 1, f"{text!r} on {message!r}: {answers}"
    return answers["naive"]


def truth(text: str, message: Mapping[str, object] | None = None) -> str:
    """T, F or U: what no evaluator says outright shows in what the condition and its opposite select."""
    if selects(text, message):
        assert not selects(f"NOT ({text})", message)
        return "T"
    return "F" if selects(f"NOT ({text})", message) else "U"
