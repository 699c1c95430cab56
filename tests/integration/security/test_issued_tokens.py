"""A real broker that takes tokens of an issuer: a program shows them from a file, and the issuer's keys change."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.http.test_jwt import jwks
from tests.integration.http.wire import ask
from tests.unit.model.jwt_tokens import AUDIENCE, ISSUER, claims, signed
from tidelog.admin import AdminClient
from tidelog.config.values import split_address
from tidelog.model.errors import NotAuthenticated
from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = pytest.mark.process
OLD, NEW = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())


def settings(tmp_path: Path) -> dict[str, str]:
    return {
        "http.authentication": "jwt",
        "authorizer.enabled": "true",
        "super.users": "User:root",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "audit.log.file": str(tmp_path / "audit.log"),
    }


def counted(body: str, sample: str) -> float:
    return next((float(line.rpartition(" ")[2]) for line in body.splitlines() if line.startswith(sample)), 0.0)


async def test_an_issuers_keys_change_while_the_broker_runs(tmp_path: Path) -> None:
    keys, file = tmp_path / "jwks.json", tmp_path / "token"
    keys.write_bytes(jwks(k1=OLD))

    def show(key: ec.EllipticCurvePrivateKey, key_id: str) -> list[str]:
        header = {"alg": "ES256", "kid": key_id}
        text = signed(header, claims(sub="root", exp=int(time.time()) + 600), key)
        file.write_text(text)
        file.chmod(0o600)
        return text.split(".")

    shown = show(OLD, "k1")
    with LocalCluster(settings=settings(tmp_path)) as cluster:
        async with AdminClient(cluster.bootstrap, token_file=str(file)) as admin:
            await admin.create_topic("t")
            keys.write_bytes(jwks(k2=NEW))
            os.kill(cluster.broker().pid, signal.SIGHUP)
            deadline_s = time.monotonic() + 20
            with pytest.raises(NotAuthenticated):
                while time.monotonic() < deadline_s:
                    await admin.list_topics()
            shown += show(NEW, "k2")
            assert await admin.list_topics() == ["t"]
            host, port = split_address(cluster.broker().url.removeprefix("http://"))
            answer = await ask((host, port), "GET", "/metrics", None, {"Authorization": f"Bearer {file.read_text()}"})
            page = answer.body.decode()
        assert counted(page, 'tidelog_jwt_key_reloads_total{outcome="done"}') >= 1
        assert counted(page, "tidelog_jwt_verifications_total") >= 2
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_bytes().splitlines()]
    assert {(line["event"], line["principal"], line["reason"]) for line in lines} == {
        ("changed", "User:root", ""),
        ("denied", "User:ANONYMOUS", "no login: jwt: key or signature"),
    }
    assert not [part for part in shown if part in page or part in json.dumps(lines)]


def test_a_broker_with_keys_that_others_may_write_does_not_start(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_bytes(jwks(k1=OLD))
    keys.chmod(0o666)
    with pytest.raises(BrokerFailed, match=r"sasl.oauthbearer.jwks.endpoint.url: others .* chmod go-w"):
        LocalCluster(settings=settings(tmp_path)).start()
