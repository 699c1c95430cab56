"""The ways to log in at a listener, as a 401 names them."""

from __future__ import annotations

from typing import cast

import pytest

from tidelog.broker.face.login import Login
from tidelog.broker.http.authentication import Authentication


@pytest.mark.parametrize(
    ("methods", "challenge"),
    [
        ((), ""),
        (("certificate",), ""),
        (("certificate", "token"), 'Bearer realm="tidelog"'),
        (("basic", "certificate"), 'Basic realm="tidelog", charset="UTF-8"'),
        (("token", "basic"), 'Bearer realm="tidelog", Basic realm="tidelog", charset="UTF-8"'),
    ],
)
def test_only_schemes_that_there_are_challenge(methods: tuple[str, ...], challenge: str) -> None:
    nobody = cast("Login", None)  # who is not asked
    assert Authentication(methods, nobody).challenge == challenge
