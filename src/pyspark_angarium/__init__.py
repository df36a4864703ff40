"""By this package Spark finds the format `angarium` by itself: it asks all that begin with `pyspark_` for a source."""
from angarium.spark.source import AngariumDataSource as DefaultSource

__all__ = ["DefaultSource"]
