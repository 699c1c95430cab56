"""A broker keeps a hash of each token, not the token."""

from __future__ import annotations

from hashlib import sha256

from tidelog.model.credentials import secret_hash


def test_of_a_secret_a_digest_is_kept() -> None:
    assert secret_hash("später") == sha256("später".encode()).hexdigest()
