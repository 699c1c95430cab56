"""JSON Web Tokens at a listener: who gets in, who does not, and for how long."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.http.conftest import JSON_DOCUMENT, Site
from tests.integration.http.test_guard import READ, Secure, basic, bearer, begin_stream, waiting
from tests.unit.model import jwt_tokens
from tests.unit.model.jwt_tokens import signed, unsigned
from tidelog.adapters.jwt_store import JwtStore
from tidelog.broker.face.jwt_login import JwtLogin, terms_of
from tidelog.broker.face.login import first_token
from tidelog.consumer import Consumer
from tidelog.model.errors import NotAuthenticated
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.spark.cluster import Cluster
from tidelog.transport.security import Security

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
HEADER = {"alg": "ES256", "kid": "k1"}


def jwks(**keys: Any) -> bytes:
    shown = [
        {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name} for name, key in keys.items()
    ]
    return json.dumps({"keys": shown}).encode()


def settings(file: Path) -> dict[str, object]:
    return {
        "http.authentication": "token,jwt",
        "authorizer.enabled": True,
        "super.users": "User:root",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.issuer": jwt_tokens.ISSUER,
        "sasl.oauthbearer.expected.audience": jwt_tokens.AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "jwt.algorithms": "ES256",
    }


class Issued(Secure):
    """A site that takes tokens of an issuer."""

    store: JwtStore
    file: Path

    @property
    def login(self) -> JwtLogin:
        found = self.site.broker.face.login.jwts
        assert found is not None
        return found


@pytest.fixture
async def issued(tmp_path: Path) -> AsyncIterator[Issued]:
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(k1=KEY))
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start(settings(file))
    for name in ("t", "hidden"):
        await site.topic(name)
    made = Issued(site)
    made.store, made.file = JwtStore(site.broker.config), file
    site.broker.face.login.jwts = JwtLogin(terms_of(site.broker.config), made.store, site.clock, site.entropy)
    watching = asyncio.create_task(made.store.watch())
    yield made
    watching.cancel()
    await site.stop()


def claims(**changes: object) -> dict[str, Any]:
    return jwt_tokens.claims(**{"exp": int(time.time()) + 60, **changes})


def token(header: dict[str, Any] = HEADER, key: Any = KEY, **changes: object) -> str:
    return signed(header, claims(**changes), key)


async def test_whoever_has_one_is_its_subject(issued: Issued) -> None:
    shown = token()
    await issued.allow("alice", "Describe")
    for _ in range(3):
        assert (await issued.ask(shown, "GET", "/topics")).json() == ["t"]
    assert issued.login.verifications == 1, "remembered"
    assert (await issued.ask(token(sub="bob"), "GET", "/topics")).json() == []
    assert (await issued.ask(await issued.token("alice"), "GET", "/topics")).json() == ["t"], "those of ours do, too"
    assert (await issued.site.get("/topics", basic("alice", "correct horse"))).status == 401
    with_dots = "first.0123456789abcdef.0123456789abcdef"
    issued.site.broker.face.login.first_token = first_token(with_dots, ["User:root"])
    assert (await issued.ask(with_dots, "GET", "/topics")).json() == ["hidden", "t"]


async def test_what_is_wrong_is_401_and_not_told(issued: Issued) -> None:
    now = int(time.time())
    public = jwks(k1=KEY)
    wrong = {
        "alg none": unsigned({"alg": "none"}, claims(), b"").rstrip("."),
        "alg none, no signature": unsigned({"alg": "none"}, claims(), b""),
        "the public key as a secret": signed({"alg": "HS256", "kid": "k1"}, claims(), public[:64]),
        "another key": token(key=OTHER),
        "unknown kid": token({"alg": "ES256", "kid": "k2"}),
        "kid as a path": token({"alg": "ES256", "kid": "../../dev/null"}),
        "a key of its own": token({**HEADER, "kid": "x", "jwk": json.loads(jwks(x=OTHER))["keys"][0]}, OTHER),
        "crit": token({**HEADER, "crit": ["b64"], "b64": True}),
        "expired": token(exp=now - 1),
        "no exp": token(exp=None),
        "not valid yet": token(nbf=now + 60),
        "issuer": token(iss="https://other.example.com"),
        "audience": token(aud="other"),
        "no subject": token(sub=None),
        "claims twice": signed(HEADER, b'{"sub":"root",' + json.dumps(claims()).encode()[1:], KEY),
        "no json": signed(HEADER, b"claims", KEY),
        "deep": signed(HEADER, b'{"a":' + b"[" * 3_000, KEY),
        "junk": "a.b.c",
        "five parts": "a.b.c.d.e",
        "large": f"{token()}{'x' * 7_000}",
    }
    told = []
    for name, shown in wrong.items():
        reply = await issued.ask(shown, "GET", "/topics")
        assert (reply.status, reply.code) == (401, 40101), name
        assert reply.headers["www-authenticate"] == 'Bearer realm="tidelog"'
        told.append(reply.body)
    assert len(dict.fromkeys(told)) == 1
    assert issued.login.verifications <= 6, "what is cheap to see is seen first"
    assert 400 <= (await issued.ask("x" * 100_000, "GET", "/topics")).status < 500
    unreadable = await issued.site.get("/topics", {"Authorization": "Bearer \udcff.\udcff.\udcff"})
    assert unreadable.status in (400, 401)
    assert (await issued.ask(token(), "GET", "/topics")).status == 200


async def test_what_waits_ends_with_the_token(issued: Issued) -> None:
    await issued.allow("alice", "Read")
    await issued.allow("alice", "Write")
    brief = token(exp=time.time() + 0.5)
    async with await issued.site.wire() as wire:
        await begin_stream(issued, wire, bearer(brief))
        reply = await issued.ask(brief, "GET", f"{READ.partition('?')[0]}?offset=1&timeout=30000")
        assert (reply.status, reply.code) == (401, 40101)
        async with asyncio.timeout(20):
            assert await wire.reader.read() == b""
    far = token(exp=2**39)
    assert (await issued.ask(far, "GET", "/topics/t/partitions/0/records?offset=1&timeout=1")).status == 200


async def test_other_keys_come_in_the_place_of_the_old_ones(issued: Issued) -> None:
    await issued.allow("alice", "Read")
    old, new = token(), token({"alg": "ES256", "kid": "k2"}, OTHER)
    task = await waiting(issued, old, "GET", READ)
    issued.file.write_bytes(b"half a fi")
    issued.store.reload()
    await issued.site.until(lambda: issued.store.reloads["refused"] == 1)
    issued.file.write_bytes(jwks(k1=KEY, k2=OTHER))
    issued.store.reload()
    await issued.site.until(lambda: issued.store.reloads["done"] == 1)
    assert (await issued.ask(new, "GET", "/topics")).status == 200
    await asyncio.sleep(0.1)
    assert not task.done(), "its key is still there"
    issued.file.write_bytes(jwks(k2=OTHER))
    issued.store.reload()
    assert ((await task).status, (await task).code) == (401, 40101)
    assert (await issued.ask(old, "GET", "/topics")).status == 401, "though it was remembered"
    assert (await issued.site.ask("POST", "/topics/t", b"{}", {**JSON_DOCUMENT, **bearer(new)})).status != 401


# -- our clients -----------------------------------------------------------------------------------------------------


async def test_clients_go_on_with_the_next_token_of_their_file(issued: Issued, tmp_path: Path) -> None:
    await issued.allow("alice", "Read")
    await issued.allow("alice", "Write")
    file = tmp_path / "token"

    def replace_by(text: str) -> None:
        new = tmp_path / "token.new"
        new.write_text(text + "\n")
        new.chmod(0o600)
        new.replace(file)

    bootstrap = "127.0.0.1:{1}".format(*issued.site.address)
    replace_by(await issued.token("alice"))
    cluster = Cluster([f"http://{bootstrap}"], timeout_s=20.0, security=Security(token_file=str(file)))
    async with (
        Producer(bootstrap, token_file=str(file)) as producer,
        Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", token_file=str(file)) as consumer,
    ):
        for number in range(2):
            await producer.send_and_wait("t", b"%d" % number)
            assert (await consumer.getone()).value == b"%d" % number
            assert [topic.name for topic in (await asyncio.to_thread(cluster.metadata)).topics] == ["t"]
            if number == 0:
                old = file.read_text().strip()
                replace_by(token())
                await issued.revoke(old)
        issued.file.write_bytes(jwks(k1=OTHER))
        issued.store.reload()
        await issued.site.until(lambda: issued.store.reloads["done"] == 1)
        replace_by(token())
        with pytest.raises(NotAuthenticated):
            await asyncio.to_thread(cluster.metadata)
    cluster.close()
