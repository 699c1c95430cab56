"""A key and its content become the numbers by which a partition knows the request again."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from tidelog.broker.http.idempotency import KeyedRequest, keyed_request, refuse_key
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import KEYED_PRODUCER_BIT, TopicId

TOPIC = TopicId("0" * 32)


def request(*keys: str) -> web.BaseRequest:
    return make_mocked_request("POST", "/", headers=CIMultiDict([("Idempotency-Key", key) for key in keys]))


def keyed(key: str, scope: str = "0", body: bytes = b"body", topic: TopicId = TOPIC) -> KeyedRequest:
    found = keyed_request(request(key), topic, scope, body)
    assert found is not None
    return found


def test_the_numbers_are_in_their_ranges() -> None:
    for i in range(200):
        found = keyed(f"key-{i}", body=b"%d" % i)
        assert found.producer_id & KEYED_PRODUCER_BIT
        assert 0 <= found.producer_id < 2**63
        assert 0 <= found.fingerprint < 2**31


def test_a_retry_has_the_same_numbers_and_anything_else_has_others() -> None:
    first = keyed("k")
    assert keyed("k") == first
    assert keyed("K").producer_id != first.producer_id
    assert keyed("k", topic=TopicId("1" * 32)).producer_id != first.producer_id
    assert keyed("k", body=b"other") == first._replace(fingerprint=keyed("k", body=b"other").fingerprint)
    assert keyed("k", body=b"other").fingerprint != first.fingerprint
    assert keyed("k", scope="1").fingerprint != first.fingerprint


def test_numbers_are_for_ever() -> None:
    """They are in logs: a broker of another version must come to the same."""
    assert keyed("order-1", "None JSON", b'{"records":[]}') == (8270160876795978153, 877167856)


def test_without_a_key_there_is_nothing() -> None:
    assert keyed_request(request(), TOPIC, "", b"") is None
    refuse_key(request(), "no")


@pytest.mark.parametrize("keys", [[""], ["a b"], ["\u00e9"], ["x" * 256], ["a", "a"], ["a\tb"]])
def test_bad_keys_are_refused(keys: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="1 to 255"):
        keyed_request(request(*keys), TOPIC, "", b"")


def test_the_longest_key_is_taken() -> None:
    assert keyed("~" * 255)


def test_a_key_can_be_refused() -> None:
    with pytest.raises(InvalidRequest, match="Idempotency-Key cannot"):
        refuse_key(request("k"), "cannot be honoured")
