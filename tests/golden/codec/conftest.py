"""Other people's codecs, behind one face: aiokafka in C, aiokafka in Python, kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest

from tidelog.model.batch_header import Compression
from tidelog.model.records import Record, StoredRecord

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka.record.default_records as kafka_records


@dataclass(frozen=True)
class ForeignCodec:
    name: str
    package: str
    builder: Any
    batch: Any
    codecs: tuple[Compression, ...]

    def encode(
        self,
        records: Sequence[Record],
        compression: Compression = Compression.NONE,
        producer: tuple[int, int, int] = (-1, -1, -1),
        *,
        transactional: bool = False,
    ) -> bytes:
        builder = self.builder(2, int(compression), transactional, *producer, 1 << 30)
        for index, record in enumerate(records):
            builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
        return bytes(builder.build())

    def decode(self, data: bytes) -> list[StoredRecord]:
        batch = self.batch(data)
        assert batch.validate_crc()
        return [
            StoredRecord(record.offset, record.timestamp, record.key, record.value, tuple(map(tuple, record.headers)))
            for record in batch
        ]


ALL = tuple(Compression)
FOREIGN = {
    codec.name: codec
    for codec in (
        ForeignCodec(
            "aiokafka-c",
            "aiokafka",
            aiokafka_records._DefaultRecordBatchBuilderCython,
            aiokafka_records._DefaultRecordBatchCython,
            ALL,
        ),
        ForeignCodec(
            "aiokafka-python",
            "aiokafka",
            aiokafka_records._DefaultRecordBatchBuilderPy,
            aiokafka_records._DefaultRecordBatchPy,
            ALL,
        ),
        ForeignCodec(
            "kafka-python",
            "kafka-python",
            kafka_records.DefaultRecordBatchBuilder,
            kafka_records.DefaultRecordBatch,
            ALL[:2],  # the others need packages that tidelog does not
        ),
    )
}


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest) -> ForeignCodec:
    return FOREIGN[request.param]


@pytest.fixture(params=[f"{name}-{codec.label}" for name in FOREIGN for codec in FOREIGN[name].codecs])
def foreign_codec(request: pytest.FixtureRequest) -> tuple[ForeignCodec, Compression]:
    name, _, label = request.param.rpartition("-")
    return FOREIGN[name], Compression.from_name(label)
