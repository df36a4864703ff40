"""A producer or consumer in a process of its own: `python -m benchmarks.role ROLE SYSTEM WORK`.

Says `ready` on standard output once it is connected, starts at `go` on standard input, ends with one JSON object.
Times are CLOCK_MONOTONIC, which all processes of the machine share.
"""
import gc
import json
import sys
from dataclasses import asdict
from typing import Any

import uvloop

from benchmarks.one_by_one import send_all, take_all
from benchmarks.systems import SYSTEMS
from benchmarks.systems.contract import System, Work


def _ready() -> None:
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise SystemExit(3)  # the benchmark has ended


async def _play(role: str, system: System, work: Work) -> dict[str, Any]:
    match role:
        case "prepare":
            await system.prepare(work)
            _ready()
            return {}
        case "produce":
            return asdict(await system.produce(work, _ready))
        case "consume":
            return {"ended": await system.consume(work, _ready)}
        case "send-one-by-one":
            return asdict(await send_all(system, work, _ready))
        case "take-one-by-one":
            await take_all(system, work, _ready)
            return {}
        case "first":
            return {"arrived": await system.first(work, _ready)}
    raise SystemExit(f"unknown role {role}")


def main() -> None:
    role, system, work = sys.argv[1:]
    gc.freeze()  # what the imports made is not garbage: the same for every system
    result = uvloop.run(_play(role, SYSTEMS[system], Work(**json.loads(work))))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
