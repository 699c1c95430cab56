"""A source whose rows cost nothing to make: the ceiling of what any Python source can reach. Spark finds it by the name
of this module."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.model.arrow import arrow_schema
from tidelog.spark.columns import ddl

KEY = b"0123456789"
ARROW_ROWS = 10_000


class DefaultSource(DataSource):
    """Rows of the same columns and sizes, from memory."""

    @classmethod
    def name(cls) -> str:
        return "generated"

    def schema(self) -> str:
        return ddl(include_headers=False)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return GeneratorReader(int(self.options["rows"]), int(self.options["size"]), int(self.options["perbatch"]))


class GeneratorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands out one Arrow batch again and again."""

    def __init__(self, rows: int, size: int, rows_per_batch: int) -> None:
        self._rows, self._size, self._rows_per_batch = rows, size, rows_per_batch

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(self._rows, start["row"] + self._rows_per_batch)}

    def prepareForTriggerAvailableNow(self) -> None:
        """It never has more."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["row"] - start["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        count = ARROW_ROWS
        columns = {
            "key": pa.array([KEY] * count, pa.binary()),
            "value": pa.array([bytes(self._size)] * count, pa.binary()),
            "topic": pa.array(["generated"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=arrow_schema())
        for start in range(0, partition.value, count):
            yield batch.slice(0, min(count, partition.value - start))
