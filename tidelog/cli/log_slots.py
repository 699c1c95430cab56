"""The entries of slot stores with their Paxos meaning, for `log dump` and `log read`.

Storage knows a slot's position, number and payload. The kind of the value, and whether it is known to be chosen, are in
the identity that the replica stored with them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.broker.consensus.stored import decode_identity
from tidelog.broker.paxos.journal import decode_floor
from tidelog.cli.data_dir import StoredLog, metadata_records
from tidelog.cli.record_text import as_object
from tidelog.consumer.records import consumer_batch
from tidelog.controller.records import VoterAssigned
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import TopicPartition
from tidelog.replication.paxos.predecessors import are_named, named_at
from tidelog.replication.paxos.state import Kind, Value
from tidelog.replication.paxos.voters import decode_voters
from tidelog.standalone.entries import split_entry
from tidelog.storage.dump import Dumped, Fields
from tidelog.storage.log_manager import METADATA_LOG, STANDALONE_LOG

Objects = list[dict[str, Any]]


def explained(dumped: Dumped) -> Dumped:
    """Returns an entry of a log dump with its encoded details decoded: of a value, its kind and whether it is known to
    be chosen, and what a batch needs before it to have an effect; of a floor (the state of the log before its first
    stored position), its offset, its voters, and the positions that have lapsed. An entry that cannot be decoded is
    returned unchanged."""
    fields = dict(dumped.fields)
    try:
        if "identity" in fields:
            digest = bytes.fromhex(str(fields.get("payload_digest", "")))
            identity = decode_identity(bytes.fromhex(str(fields.pop("identity"))), digest)
            fields |= _value_fields(int(str(fields["position"])), identity.value)
            fields["state"] = "learned" if identity.learned else "accepted"
        elif "floor" in fields:
            floor = decode_floor(bytes.fromhex(str(fields.pop("floor"))))
            fields |= {"epoch": floor.epoch, "next_offset": floor.next_offset}
            if floor.lapsed:
                fields["lapsed"] = list(floor.lapsed)
            fields["voters"] = [f"{voter['voter_id']}@node-{voter['node_id']}" for voter in _voters(floor.voters)]
    except (ValueError, msgspec.DecodeError):
        return dumped
    return dumped._replace(fields=fields)


def _value_fields(position: int, value: Value) -> Fields:
    fields: Fields = {"value": value.kind.name.lower(), "birth": value.birth}
    if value.kind in (Kind.APPEND, Kind.VOTERS):
        fields |= {"offset": value.base_offset, "count": value.count}
    if value.kind is Kind.APPEND and are_named(value.begin):
        fields["follows"] = named_at(position, value.begin)
    elif value.kind is Kind.APPEND and value.begin:
        fields["unbroken_from"] = value.begin
    elif value.kind is Kind.TRUNCATE:
        fields["begin"] = value.begin
    elif value.kind is Kind.DELETE:
        fields["offset"] = value.base_offset
    return fields


def _voters(content: bytes) -> Objects:
    if not content:
        return []
    names = ("voter_id", "node_id", "incarnation", "host", "port")
    return [{name: getattr(voter, name) for name in names} for voter in decode_voters(content).voters]


def payload_objects(log: StoredLog, kind: str, payload: bytes) -> Objects:
    """Returns the contents of the payload of a value of this kind, as objects for JSON."""
    if kind == "append" and log.identity == METADATA_LOG:
        return [msgspec.to_builtins(record) for record in metadata_records(payload)]
    if kind == "append" and log.identity != STANDALONE_LOG:
        return list(batch_records(log, payload))
    return entry_objects(kind, payload)


def entry_objects(kind: str, payload: bytes) -> Objects:
    """Returns the contents of the payload of a standalone log's value of this kind, as objects for JSON."""
    if kind == "voters":
        return [{"voters": _voters(payload)}]
    entry = split_entry(payload)
    return [msgspec.to_builtins(entry) if isinstance(entry, VoterAssigned) else _bytes(entry)]


def batch_records(log: StoredLog, data: bytes) -> Iterator[dict[str, Any]]:
    """Yields the records of a topic's batches."""
    log_partition = TopicPartition(log.name, log.identity.partition)
    for batch in iter_batches(data):
        yield from map(as_object, consumer_batch(log_partition, batch, 0).records())


def _bytes(content: bytes) -> dict[str, Any]:
    try:
        return {"value": content.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(content).decode()}
