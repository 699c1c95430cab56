"""What the clients' constructors take: Kafka's names, this version's aliases, and nothing else without a word."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.log import Reader, Writer
from tidelog.model.errors import InvalidRequest
from tidelog.producer import Producer
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.parameters import client_parameters

DOCUMENTED: list[tuple[Callable[..., Any], set[str]]] = [
    (Producer, {"bootstrap_servers", "compression_type", "enable_idempotence", "batch_size", "max_request_size"}),
    (Consumer, {"bootstrap_servers", "group_id"}),
    (AdminClient, {"bootstrap_servers"}),
    (Writer, {"bootstrap_servers"}),
    (Reader, {"bootstrap_servers"}),
]


class Client:
    @client_parameters(group="group_id", batch_bytes="batch_size")
    def __init__(self, *topics: str, group_id: str | None = None, batch_size: int = 1, max_request_size: int = 2):
        self.given = (topics, group_id, batch_size, max_request_size)


UNTYPED: Callable[..., Client] = Client
"""As programs call it whose parameters no type checker sees."""


@pytest.mark.parametrize(("client", "names"), DOCUMENTED)
def test_the_documented_names_are_in_the_signature_and_the_aliases_are_not(
    client: Callable[..., Any], names: set[str]
) -> None:
    parameters = set(inspect.signature(client).parameters)
    assert names <= parameters
    assert not parameters & {"bootstrap", "group", "compression", "idempotent", "batch_bytes", "request_bytes_max"}


def test_an_alias_is_the_parameter_it_stands_for() -> None:
    assert UNTYPED("t", group="g", batch_bytes=5).given == Client("t", group_id="g", batch_size=5).given


async def test_the_aliases_of_this_version() -> None:
    untyped_producer: Callable[..., Producer] = Producer
    with pytest.raises(InvalidRequest, match=r"batch_size \(10\)"):
        untyped_producer(bootstrap="http://127.0.0.1:1", compression="none", idempotent=True, batch_bytes=10)
    with pytest.raises(InvalidRequest, match="bootstrap address"):
        untyped_producer(bootstrap="ftp://x")
    untyped_consumer: Callable[..., Consumer] = Consumer
    with pytest.raises(InvalidRequest, match="group"):
        untyped_consumer(bootstrap="http://127.0.0.1:1", group="x" * 256)
    untyped_admin: Callable[..., AdminClient] = AdminClient
    with pytest.raises(InvalidRequest, match="bootstrap address"):
        untyped_admin(bootstrap="ftp://x")


def test_a_parameter_under_both_of_its_names() -> None:
    with pytest.raises(TypeError, match="Client: group is an alias of group_id; give one of them"):
        UNTYPED(group="g", group_id="g")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("groupid", "group_id"),
        ("batch.size", "batch_size"),
        ("batchsize", "batch_size"),
        ("request_bytes_max", "max_request_size"),
    ],
)
def test_an_unknown_parameter_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=rf"Client has no parameter '{name}'; did you mean '{nearest}'\?"):
        UNTYPED(**{name: 1})


def test_a_parameter_that_is_like_no_other_is_answered_with_all_there_are() -> None:
    with pytest.raises(TypeError, match="there are batch_size, group_id, max_request_size"):
        UNTYPED(zzz=1)


@pytest.mark.parametrize("servers", ["a:1, http://b:2,a:1", ["a:1", "http://b:2"], ("a:1", " b:2")])
def test_bootstrap_servers_are_a_comma_list_or_a_list(servers: str | list[str]) -> None:
    assert parse_bootstrap(servers) == ("http://a:1", "http://b:2")
