"""Which content types are taken, and which form a reader gets."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tidelog.broker.http.media import Embedded, check_batches, check_document, embedded_accepted, embedded_sent
from tidelog.model.errors import NotAcceptable, UnsupportedMediaType

BINARY, JSON, TEXT = Embedded


def request(**headers: str) -> web.BaseRequest:
    return make_mocked_request("POST", "/", headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("content_type", "embedded"),
    [
        ("application/vnd.kafka.json.v2+json", JSON),
        ("application/vnd.kafka.binary.v2+json", BINARY),
        ("application/vnd.kafka.v2+json", BINARY),
        ("application/vnd.kafka.text.v2+json", TEXT),
        ("application/json", JSON),
        ("application/json; charset=UTF-8", JSON),
        ('Application/JSON ;charset="utf-8"', JSON),
    ],
)
def test_forms_sent(content_type: str, embedded: Embedded) -> None:
    assert embedded_sent(request(Content_Type=content_type)) is embedded


def test_without_a_content_type_it_is_binary() -> None:
    assert embedded_sent(request()) is BINARY


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/vnd.kafka.avro.v2+json",
     "application/vnd.kafka.json.v1+json", "application/json; charset=utf-7", "nonsense",
     "multipart/form-data; boundary=x", "*/*", "application/*"],
)  # fmt: skip
def test_other_forms_are_refused_with_the_header_to_send(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        embedded_sent(request(Content_Type=content_type))
    assert "utf-7" in content_type or "application/vnd.kafka.json.v2+json" in caught.value.message


@pytest.mark.parametrize(
    ("accept", "embedded"),
    [
        ("*/*", BINARY),
        ("application/*", BINARY),
        ("application/json", JSON),
        ("application/vnd.kafka.json.v2+json", JSON),
        ("application/vnd.kafka.text.v2+json, */*;q=0.5", TEXT),
        ("application/vnd.kafka.v2+json", BINARY),
        ("text/html, application/json;q=0.5, */*;q=0.1", JSON),
        ("application/vnd.kafka.binary.v2+json;q=0.2, application/vnd.kafka.json.v2+json;q=0.9", JSON),
        ("application/json, application/vnd.kafka.binary.v2+json", JSON),
        ("application/json;q=0, */*", BINARY),
    ],
)
def test_forms_wanted(accept: str, embedded: Embedded) -> None:
    assert embedded_accepted(request(Accept=accept)) is embedded


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "application/vnd.kafka.avro.v2+json", "", "*/*;q=x"]
)
def test_forms_that_nobody_has_are_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        embedded_accepted(request(Accept=accept))


def test_documents_and_batches() -> None:
    check_document(request())
    check_document(request(Content_Type="application/json"))
    check_batches(request())
    check_batches(request(Content_Type="application/octet-stream"))
    check_batches(request(Content_Type="application/vnd.tidelog.batches"))
    with pytest.raises(UnsupportedMediaType):
        check_document(request(Content_Type="application/x-www-form-urlencoded"))
    with pytest.raises(UnsupportedMediaType):
        check_batches(request(Content_Type="application/json"))
