"""Records as bytes. What is written here is on disks: a change is a change of the format."""

from __future__ import annotations

import pytest

from tidelog.groups.records import (
    ClassicRecord,
    CurrentKey,
    CurrentRecord,
    Gone,
    GroupLogRecord,
    GroupRecord,
    HeldTopic,
    InstanceRecord,
    KeptMember,
    MemberRecord,
    OffsetRecord,
    TargetRecord,
    TargetTopic,
    UnknownGroupRecord,
    decode,
    encode,
    gone,
)
from tidelog.model.groups import InstanceSettings

GROUP = b'{"kind":"group","group":"g","epoch":7,"assignor":"uniform","digest":"d1"}'
RECORDS: list[tuple[GroupLogRecord, bytes, bytes | None]] = [
    (
        GroupRecord("g", 7, "uniform", "d1", None),
        b'{"kind":"group","group":"g"}',
        GROUP,
    ),
    (
        MemberRecord("g", "m", None, "c", "h", "r", ("t",), "", None, None, 300_000),
        b'{"kind":"member","group":"g","member_id":"m"}',
        (
            b'{"kind":"member","group":"g","member_id":"m","instance_id":null,"client_id":"c","client_host":"h","rack":"r",'
            b'"topics":["t"],"pattern":"","assignor":null,"session_timeout_ms":null,"rebalance_timeout_ms":300000}'
        ),
    ),
    (
        TargetRecord("g", "m", (TargetTopic("t", "id", (0, 2)),)),
        b'{"kind":"target","group":"g","member_id":"m"}',
        b'{"kind":"target","group":"g","member_id":"m","topics":[{"topic":"t","topic_id":"id","partitions":[0,2]}]}',
    ),
    (
        CurrentRecord("g", "m", 7, 6, (HeldTopic("t", "id", (0, 2), (3, 7)),), (), is_told=True),
        b'{"kind":"current","group":"g","member_id":"m"}',
        (
            b'{"kind":"current","group":"g","member_id":"m","member_epoch":7,"previous_epoch":6,"held":[{"topic":"t",'
            b'"topic_id":"id","partitions":[0,2],"epochs":[3,7]}],"is_told":true}'
        ),
    ),
    (
        OffsetRecord("g", "t", "id", 2, 10, 1, "", "m", 4, 99),
        b'{"kind":"place","group":"g","topic":"t","partition":2}',
        (
            b'{"kind":"place","group":"g","topic":"t","topic_id":"id","partition":2,"offset":10,"leader_epoch":1,'
            b'"metadata":"","member_id":"m","sequence":4,"committed_ms":99}'
        ),
    ),
    (
        ClassicRecord("g", 3, "consumer", "range", "m", (KeptMember("m", "c", "h", 9, 8, b"\0x", b"\1", "i"),), True),
        b'{"kind":"classic","group":"g"}',
        (
            b'{"kind":"classic","group":"g","generation":3,"protocol_type":"consumer","protocol":"range","leader":"m",'
            b'"members":[{"member_id":"m","client_id":"c","client_host":"h","session_timeout_ms":9,'
            b'"rebalance_timeout_ms":8,"metadata":"AHg=","assignment":"AQ==","instance_id":"i"}],"is_assigned":true}'
        ),
    ),
    (
        ClassicRecord("g", 4, "consumer", empty_since_ms=99),
        b'{"kind":"classic","group":"g"}',
        b'{"kind":"classic","group":"g","generation":4,"protocol_type":"consumer","empty_since_ms":99}',
    ),
    (gone(CurrentKey("g", "m")), b'{"kind":"current","group":"g","member_id":"m"}', None),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS, ids=lambda given: type(given).__name__)
def test_the_bytes_of_a_record(record: GroupLogRecord, key: bytes, value: bytes | None) -> None:
    assert encode(record) == (key, value)
    assert decode(key, value) == record


def test_instances_come_back_as_they_were() -> None:
    record = InstanceRecord("g", "i", InstanceSettings(format="json"), ("t",))
    assert decode(*encode(record)) == record
    assert decode(encode(record)[0], None) == Gone("g", record.key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"kind":"quota","group":"g"}', b"{}"),
        (b'{"kind":"quota","group":"g"}', None),
        (b'{"kind":"group","group":"g"}', b'{"kind":"group","group":"g","epoch":7}'),
        (b'{"kind":"group","group":"g"}', GROUP.replace(b"}", b',"more":1}')),
        (b'{"kind":"group","group":"h"}', RECORDS[0][2]),
        (b"\xff", b"\xff"),
        (b"", None),
    ],
)
def test_what_this_version_does_not_know_is_an_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownGroupRecord, match="__consumer_offsets"):
        decode(key, value)
