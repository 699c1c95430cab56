"""Spark reads and writes tidelog's topics, as it does Kafka's: `format("tidelog")`, in Python, without a jar.

`options`, `offsets`, `stream`, `batch`, `limits`, `planner`, `ranges`, `identity` and `chunks` decide; `cluster` and
`range_reader` talk HTTP; `decode` makes Arrow of record batches. None of them imports pyspark. `source`, `readers` and
`sink` are what Spark calls.

    from tidelog.spark import TidelogDataSource   # only needed to register it by hand; see docs/spark.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.spark.source import TidelogDataSource

__all__ = ["TidelogDataSource"]


def __getattr__(name: str) -> object:
    """Imports pyspark only when the class that needs it is asked for."""
    if name != "TidelogDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.spark.source import TidelogDataSource  # noqa: PLC0415 - the point of this function

    return TidelogDataSource
