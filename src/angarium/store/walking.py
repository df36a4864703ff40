"""Whether every key in LMDB's file can be reached: `python -m angarium.store.walking DIR`, which ends with 0 if so.

In a process of its own, because damage ends it in any way: LMDB trusts what it finds, and what lies behind the end of
the file is not there to be read.
"""
import sys

import lmdb

from angarium.core.storage import Table


def walk(directory: str) -> None:
    opened = lmdb.open(directory, max_dbs=max(Table) + 2, readonly=True, lock=False, create=False)
    with opened as environment, environment.begin() as transaction:
        for name in list(transaction.cursor().iternext(keys=True, values=False)):
            with transaction.cursor(environment.open_db(name, transaction, create=False)) as cursor:
                for _ in cursor.iternext(keys=True, values=False):
                    pass


if __name__ == "__main__":
    walk(sys.argv[1])
