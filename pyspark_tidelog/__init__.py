"""How Spark finds `format("tidelog")` by itself: it imports every module that is called `pyspark_*` and looks for
`DefaultSource`. An error here would break all other Python sources, too, so there is nothing here that can fail."""

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
