"""Quotas in the metadata: given, taken back, bounded, kept by snapshots, and not before all brokers know them."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster
from tidelog.controller import decide_quotas
from tidelog.controller.apply import apply
from tidelog.controller.commands import AlterQuotas, QuotaChange
from tidelog.controller.records import QuotasAltered, decode_record, encode_record
from tidelog.controller.snapshot import FORMAT_WITHOUT_ACCESS, decode_image, encode_image
from tidelog.model.errors import InvalidRequest, UnsupportedLevel
from tidelog.model.quotas import DEFAULT, Entity, Quota

ALICE = QuotaChange({"producer_byte_rate": 1000.0, "request_rate": 5.5}, user="alice")
SHOWN = Quota(Entity("alice"), (("producer_byte_rate", 1000.0), ("request_rate", 5.5)))


def altered(*changes: QuotaChange) -> Cluster:
    cluster = Cluster()
    cluster.do(AlterQuotas(changes))
    return cluster


def test_rates_are_given_and_taken_back() -> None:
    cluster = altered(ALICE, QuotaChange({"connection_creation_rate": 3.0}, address=DEFAULT))
    assert cluster.image.quotas == (Quota(Entity(address=DEFAULT), (("connection_creation_rate", 3.0),)), SHOWN)
    cluster.do(AlterQuotas([QuotaChange({"request_rate": None}, user="alice")]))
    assert cluster.image.quotas[1] == Quota(Entity("alice"), (("producer_byte_rate", 1000.0),))
    cluster.do(AlterQuotas([QuotaChange({"producer_byte_rate": None}, user="alice")]))
    assert [quota.entity for quota in cluster.image.quotas] == [Entity(address=DEFAULT)]


def test_what_is_so_already_writes_nothing() -> None:
    cluster = altered(ALICE)
    written = len(cluster.history)
    cluster.do(AlterQuotas([ALICE]))
    cluster.do(AlterQuotas([QuotaChange({"request_rate": None}, user="bob")]))
    cluster.do(AlterQuotas([QuotaChange({"request_rate": 1.0}, user="bob")], validate_only=True))
    assert len(cluster.history) == written
    assert cluster.image.quotas == (SHOWN,)


def test_all_changes_or_none() -> None:
    cluster = Cluster()
    with pytest.raises(InvalidRequest):
        cluster.do(AlterQuotas([ALICE, QuotaChange({"request_rate": -1.0}, user="bob")]))
    assert cluster.image.quotas == ()


def test_entities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_quotas, "ENTITIES_MAX", 3)
    cluster = altered(*(QuotaChange({"request_rate": 1.0}, user=f"u{n}") for n in range(3)))
    with pytest.raises(InvalidRequest, match="at most 3"):
        cluster.do(AlterQuotas([ALICE]))
    cluster.do(AlterQuotas([QuotaChange({"request_rate": None}, user="u0"), ALICE]))
    for count in (0, decide_quotas.CHANGES_MAX + 1):
        with pytest.raises(InvalidRequest, match="one request takes 1 to"):
            cluster.do(AlterQuotas([ALICE] * count))


@pytest.mark.parametrize("level", [1, 2])
def test_older_brokers_keep_no_quotas(level: int) -> None:
    cluster = Cluster(level=level)
    with pytest.raises(UnsupportedLevel, match="quotas need feature level 3"):
        cluster.do(AlterQuotas([ALICE]))
    with pytest.raises(UnsupportedLevel):
        encode_record(QuotasAltered((ALICE,)), level)


def test_a_record_and_a_snapshot_hold_all() -> None:
    record = QuotasAltered((ALICE, QuotaChange({"request_rate": None}, client_id=DEFAULT)))
    assert decode_record(encode_record(record)) == record
    cluster = altered(ALICE)
    assert decode_image(encode_image(cluster.image)) == cluster.image
    assert apply(cluster.image, QuotasAltered((ALICE,)), 9).quotas == (SHOWN,)


def test_a_snapshot_of_the_second_level_is_what_older_brokers_read() -> None:
    cluster = Cluster(level=2)
    cluster.start(1, 2)
    data = encode_image(cluster.image)
    assert f'"format":{FORMAT_WITHOUT_ACCESS}'.encode() in data and b"quotas" not in data
    assert decode_image(data) == cluster.image
