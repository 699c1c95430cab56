"""A broker keeps salted hashes of passwords, and refuses passwords that are too short or too long."""

from __future__ import annotations

import sys

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.model.passwords import (
    HASH_BYTES,
    PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN,
    SALT_BYTES,
    SCRAM_HASHES,
    check_library,
    check_password,
    is_right,
    made_user,
    nobodys_hash,
)

SALTS = tuple(bytes([number]) * SALT_BYTES for number in range(3))


@pytest.mark.parametrize("password", ["", "x" * (PASSWORD_BYTES_MIN - 1), "x" * (PASSWORD_BYTES_MAX + 1), "ä" * 513])
def test_a_password_that_is_too_short_or_too_long_is_refused(password: str) -> None:
    with pytest.raises(InvalidRequest, match="a password has 8 to 1024 bytes"):
        check_password(password)


@pytest.mark.parametrize("size", [PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX])
def test_a_password_of_allowed_length_is_taken(size: int) -> None:
    check_password("x" * size)


def test_the_right_password_is_told_from_others() -> None:
    pytest.importorskip("argon2")
    assert check_library() == ""
    user = made_user("alice", "correct horse", SALTS)
    assert is_right(user.password_hash, "correct horse")
    assert not is_right(user.password_hash, "correct horsf")
    assert [keys.mechanism for keys in user.scram] == list(SCRAM_HASHES)
    assert [keys.salt for keys in user.scram] == [salt.hex() for salt in SALTS[1:]]
    assert not is_right(nobodys_hash(SALTS[0], bytes(HASH_BYTES)), "correct horse")


def test_without_its_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2.low_level", None)
    assert "pip install 'tidelog[security]'" in check_library()
