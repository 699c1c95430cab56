"""A client with a name and a password logs in by SCRAM where there is no TLS, and finds out whom it talks to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.integration.doors import doors_of
from tests.integration.http.conftest import ROOT
from tests.integration.kafka.conftest import KafkaSite, started
from tidelog.broker.face.attempts import FAILURES_MAX
from tidelog.consumer import Consumer
from tidelog.controller.access_commands import StoreUser
from tidelog.model.credentials import ScramKeys, User
from tidelog.model.errors import NotAuthenticated
from tidelog.producer import Producer
from tidelog.transport.credentials import basic
from tidelog.transport.frames.doors import Doors

PASSWORD = "correct = horse, battery"
NAME = "alice = a, b"
BROKER = "the broker's URL"


def same(keys: ScramKeys) -> ScramKeys:
    return keys


@asynccontextmanager
async def site_of(mechanisms: str, altered: Callable[[ScramKeys], ScramKeys] = same) -> AsyncIterator[KafkaSite]:
    """A broker that logs a user in by SCRAM in plain text, with what the cluster keeps of the password altered. Over
    HTTP it asks nobody who they are, so that what is refused is refused by the login in frames."""
    async with started({"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": mechanisms}) as site:
        user = await site.broker.face.login.made_user(NAME, PASSWORD)
        altered_user = User(user.name, user.password_hash, tuple(map(altered, user.scram)))
        await site.broker.admin.by(ROOT).change_access(StoreUser(altered_user, True))
        yield site


def terms(site: KafkaSite) -> dict[str, Any]:
    host, port = site.http.address
    return {"bootstrap_servers": f"http://{host}:{port}", "sasl_username": NAME, "sasl_password": PASSWORD}


def doors_to(site: KafkaSite, password: str = PASSWORD) -> Doors:
    doors = doors_of(basic(NAME, lambda: password))
    host, port = site.server.address
    doors.learn({BROKER: f"{host}:{port}"})
    return doors


def another_server(keys: ScramKeys) -> ScramKeys:
    """The keys of a server that can check a proof, and has none of its own to give."""
    return msgspec.structs.replace(keys, server_key=keys.stored_key)


def endless(keys: ScramKeys) -> ScramKeys:
    return msgspec.structs.replace(keys, iterations=2**31)


@pytest.mark.parametrize(
    ("altered", "password", "reason"),
    [
        (same, "wrong password", "who is calling is not known"),
        (another_server, PASSWORD, "this may be another server"),
        (endless, PASSWORD, "2147483648 iterations"),
    ],
)
async def test_a_login_that_fails_says_why_and_is_not_tried_over_http(
    altered: Callable[[ScramKeys], ScramKeys], password: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site_of("SCRAM-SHA-512", altered) as site:
        with caplog.at_level(logging.DEBUG):
            async with Producer(**{**terms(site), "sasl_password": password}) as producer:
                with pytest.raises(NotAuthenticated, match=reason):
                    await producer.send_and_wait("t", b"x")
            async with Consumer("t", **{**terms(site), "sasl_password": password}) as consumer:
                with pytest.raises(NotAuthenticated, match=reason):
                    await consumer.getone()
        assert password not in caplog.text
        assert [site.led("t", number).log_end_offset for number in range(2)] == [0, 0]


async def test_connections_of_a_client_are_not_taken_for_attempts_to_guess() -> None:
    async with site_of("SCRAM-SHA-256") as site:
        doors = doors_to(site)
        lines = await asyncio.gather(*(doors.take(BROKER, 10) for _ in range(2 * FAILURES_MAX)))
        doors.close()
        assert None not in lines
