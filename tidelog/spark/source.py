"""The data source that Spark knows as `tidelog`: a thin layer over the other modules.

Spark imports it in many processes before a query starts: to find data sources, to get the columns, to plan, to read.
Each method imports only what it needs.
"""

# ruff: noqa: PLC0415 - most of Spark's processes need one of these imports, or none

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tidelog.spark.columns import ddl, query_columns
from tidelog.spark.option_values import OptionValues

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class TidelogDataSource(DataSource):
    """The Spark data source for `spark.readStream.format("tidelog")`, and `read`, `write`, `writeStream`. Options:
    docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return "tidelog"

    def schema(self) -> str:
        """Returns the columns, those of Spark's Kafka source."""
        return ddl(include_headers=OptionValues(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of a batch query."""
        from tidelog.spark.options import parse_source_options
        from tidelog.spark.readers import FilteringReader, TidelogReader

        options = parse_source_options(self.options, is_streaming=False)
        kind = FilteringReader if options.pushes_filters else TidelogReader
        return kind(options, query_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query."""
        from tidelog.spark.options import parse_source_options
        from tidelog.spark.readers import TidelogStreamReader

        return TidelogStreamReader(parse_source_options(self.options, is_streaming=True), query_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Returns the writer of a batch query."""
        from tidelog.spark.sink import TidelogWriter, checked_options

        return TidelogWriter(checked_options(self.options, schema, overwrite=overwrite, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query."""
        from tidelog.spark.sink import TidelogStreamWriter, checked_options

        return TidelogStreamWriter(checked_options(self.options, schema, overwrite=overwrite, is_streaming=True))
