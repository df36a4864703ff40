"""What is told when messages that a query has not read are gone."""
from angarium.core.errors import Rejected


def lost(what: str) -> Rejected:
    return Rejected(
        "data-lost",
        f"{what}. Some messages may not have been read. Let the destination retain its messages for longer "
        "(angarium alter NAME --retain 7d); to go on without what is gone, set the option failOnDataLoss to false",
    )
