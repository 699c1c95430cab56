"""A real broker that takes certificates: who has one is known by it, and may what the ACLs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.model.errors import NotAuthenticated, NotAuthorized
from tidelog.testing import LocalCluster

SETTINGS = {
    "http.authentication": "certificate",
    "ssl.client.auth": "requested",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
    "authorizer.enabled": "true",
    "super.users": "User:ROOT",
}


async def test_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    with LocalCluster(tls=True, settings=SETTINGS, data_dir=tmp_path) as cluster:
        made = cluster.certificates
        assert made is not None

        def admin(name: str | None) -> AdminClient:
            keystore = None if name is None else str(made.client(name))
            return AdminClient(cluster.bootstrap, ssl_ca_location=str(made.ca), ssl_keystore_location=keystore)

        async with admin("root") as root:
            await root.create_topic("t")
        async with admin("alice") as alice:
            with pytest.raises(NotAuthorized, match="User:ALICE"):
                await alice.create_topic("u")
        with pytest.raises(NotAuthenticated):
            async with admin(None) as nobody:
                await nobody.create_topic("u")
