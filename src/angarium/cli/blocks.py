"""Options that several commands share: written once, as the parameters of a function that makes one value of them.

    @with_block("which", _filter)
    def ls(address: options.Address = [], *, which: DeadFilter) -> None: ...

The command line sees the parameters of `_filter` where `which` stands; the command gets what `_filter` returns.
"""
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def with_block(name: str, make: Callable[..., Any]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    block = list(inspect.signature(make).parameters.values())

    def decorate(command: Callable[..., _Result]) -> Callable[..., _Result]:
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += block if parameter.name == name else [parameter]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

        @wraps(command)
        def run(**given: Any) -> _Result:
            made = make(**{each.name: given.pop(each.name) for each in block})
            return command(**given, **{name: made})

        del run.__wrapped__  # whoever asks for its signature shall see this one
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
