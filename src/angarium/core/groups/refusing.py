"""How a decision is refused that would go beyond a limit."""
from angarium.core.errors import Rejected


def too_many(what: str, limit_name: str, limit: int) -> Rejected:
    return Rejected("too-many", f"{what}: there are {limit_name} {limit:,}; remove some, or raise the limit")
