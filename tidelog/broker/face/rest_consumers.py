"""Requests to REST consumer instances and their answers, re-exported for listeners (see
`BrokerFace.rest_consumers`).
"""

from __future__ import annotations

from tidelog.broker.rest_consumers.requests import (
    Assign,
    CloseInstance,
    CommitPositions,
    CommittedFetched,
    FetchCommitted,
    InstanceRequest,
    OffsetRefused,
    OffsetsCommitted,
    OpenInstance,
    Partition,
    Reading,
    ReadRecords,
    RecordsRead,
    Seek,
    SeekToEdge,
    ShowReading,
    Subscribe,
)

__all__ = [
    "Assign",
    "CloseInstance",
    "CommitPositions",
    "CommittedFetched",
    "FetchCommitted",
    "InstanceRequest",
    "OffsetRefused",
    "OffsetsCommitted",
    "OpenInstance",
    "Partition",
    "ReadRecords",
    "Reading",
    "RecordsRead",
    "Seek",
    "SeekToEdge",
    "ShowReading",
    "Subscribe",
]
