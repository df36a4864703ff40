"""Settings of a pipeline: a few lines of TOML for a run that is repeated, and options above them.

    address = "angarium://broker1,angarium://broker2"

    [archive]
    destinations = ["orders", "prices.*"]
    to = "/srv/archive"

    [spark]                                # any setting of Spark, and `master`
    master = "spark://host:7077"
    "spark.executor.memory" = "4g"

Keys are the names of options, with underscores. Unknown keys are errors.
"""
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from angarium.cli import options
from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.core.errors import ConfigError

PIPELINES = ("archive", "audit", "replay", "traffic")


class PipelineSettings:
    def __init__(self, pipeline: str, config: Path | None, given: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
        """`kinds`: what each key of this pipeline is: str, int, float, bool, or list for texts."""
        told = _read(config) if config is not None else {}
        self._where = f"{config}: [{pipeline}]"
        self._values = self._checked(told.get(pipeline, {}), kinds)
        self._values |= {key: value for key, value in given.items() if value not in (None, [])}
        if (endless := next((key for key, value in self._values.items() if value == math.inf), None)) is not None:
            raise Failure(f"--{endless} is endless: give a number, or leave it out", EXIT_USAGE)
        self._addresses = [told["address"]] if "address" in told else []
        spark = _of_spark(config, told.get("spark", {}))
        self.master = spark.pop("master", "")
        self.spark = spark

    def _checked(self, table: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
        for key, value in table.items():
            if key not in kinds:
                raise ConfigError(f"{self._where}: unknown key {key!r}; there are {', '.join(kinds)}")
            kind = kinds[key]
            texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
            right = texts if kind is list else isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            if not right and not (kind is float and isinstance(value, int) and not isinstance(value, bool)):
                wanted = "a list of texts" if kind is list else kind.__name__
                raise ConfigError(f"{self._where}: {key} = {value!r}: it is {wanted}")
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ConfigError(f"{self._where}: {key} = {value!r}: it is a number from 0")
            if value == "":
                raise ConfigError(f"{self._where}: {key} is empty: give it a value, or leave the line out")
        return dict(table)

    def get(self, key: str, default: Any) -> Any:
        return self._values.get(key, default)

    def required(self, key: str, option: str) -> Any:
        if key not in self._values:
            raise Failure(f"{option} is missing: give it, or {key!r} in the file of --config", EXIT_USAGE)
        return self._values[key]

    def addresses(self, given: list[str]) -> tuple[str, ...]:
        return tuple(options.split_addresses(given or self._addresses))


def _of_spark(path: Path | None, table: Mapping[str, Any]) -> dict[str, str]:
    """Spark passes over what it does not know: so what cannot be a setting of Spark's is refused here."""
    for key, value in table.items():
        if isinstance(value, dict | list):
            remedy = 'names with dots are quoted, as "spark.driver.memory"'
            raise ConfigError(f"{path}: [spark] has a table {key!r}: {remedy}")
        if key != "master" and not key.startswith("spark."):
            valid = "there are master, and names that begin with 'spark.'"
            raise ConfigError(f"{path}: [spark]: unknown key {key!r}; {valid}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    for key, value in told.items():
        if key == "address":
            if not isinstance(value, str):
                raise ConfigError(f"{path}: address = {value!r}: it is a text; several are separated by commas")
        elif key not in (*PIPELINES, "spark"):
            raise ConfigError(f"{path}: unknown key {key!r}; there are address, {', '.join(PIPELINES)}, spark")
        elif not isinstance(value, dict):
            raise ConfigError(f"{path}: {key} is a table: [{key}]")
    return told
