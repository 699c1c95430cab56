"""Registers `format("tidelog")` with Spark, which imports every module called `pyspark_*` and looks for
`DefaultSource`. An error here would break all other Python sources as well, so this module does as little as possible.
"""

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
