"""The Spark data source `format("tidelog")`, with the interface of Spark's Kafka source, in Python, without a jar.

The modules `options`, `offsets`, `stream`, `batch`, `limits`, `planner`, `ranges`, `identity` and `chunks` are pure;
`cluster` and `range_reader` use HTTP; `decode` converts record batches to Arrow. None of them imports pyspark. Spark
calls `source`, `readers` and `sink`.

    from tidelog.spark import TidelogDataSource   # only needed to register it by hand; see docs/spark.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.spark.source import TidelogDataSource

__all__ = ["TidelogDataSource"]


def __getattr__(name: str) -> object:
    """Imports the data source's class, and with it pyspark, when it is first used."""
    if name != "TidelogDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.spark.source import TidelogDataSource  # noqa: PLC0415 - the point of this function

    return TidelogDataSource
