"""Requests to REST consumer instances, and their answers: the words of `BrokerFace.rest_consumers`."""

from __future__ import annotations

from tidelog.broker.rest_consumers.requests import (
    Assign,
    CloseInstance,
    CommitPlaces,
    InstanceRequest,
    OpenInstance,
    Place,
    PlaceRefused,
    PlacesKept,
    PlacesShown,
    Reading,
    ReadRecords,
    RecordsRead,
    Seek,
    SeekToEdge,
    ShowPlaces,
    ShowReading,
    Subscribe,
)

__all__ = [
    "Assign",
    "CloseInstance",
    "CommitPlaces",
    "InstanceRequest",
    "OpenInstance",
    "Place",
    "PlaceRefused",
    "PlacesKept",
    "PlacesShown",
    "ReadRecords",
    "Reading",
    "RecordsRead",
    "Seek",
    "SeekToEdge",
    "ShowPlaces",
    "ShowReading",
    "Subscribe",
]
