"""A client's parameters say who is calling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.adapters.secret_file import read_secret
from tidelog.model.errors import InvalidRequest
from tidelog.transport.credentials import Credentials
from tidelog.transport.security import Security


def made(**parameters: str) -> Credentials | None:
    security = Security(**parameters)
    assert "canary" not in repr(security)
    return security.credentials(lambda path: f"secret of {path}")


def test_nothing_given_is_nobody() -> None:
    assert made() is None


def test_a_name_and_a_password() -> None:
    for found in (
        made(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="pw"),
        made(sasl_username="alice", sasl_password="pw"),
    ):
        assert found is not None
        assert (found.header, repr(found)) == ("Basic YWxpY2U6cHc=", "Credentials(Basic)")
    from_file = made(sasl_username="alice", sasl_password_file="f")
    assert from_file is not None and from_file.header.startswith("Basic ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl_mechanism": "SCRAM-SHA-256"},
        {"sasl_mechanism": "PLAIN"},
        {"sasl_username": "alice"},
        {"sasl_password": "canary"},
        {"sasl_username": "alice", "sasl_password": "canary", "sasl_password_file": "f"},
        {"sasl_username": "a:b", "sasl_password": "canary"},
        {"token_file": "f", "sasl_username": "alice"},
        {"token_file": "its secret has blanks"},
    ],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        made(**wrong)
    assert "canary" not in caught.value.message


def test_a_file_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("id.secret\n")
    path.chmod(0o600)
    assert read_secret(str(path)) == "id.secret"
    found = Security(token_file=str(path)).credentials(read_secret)
    assert found is not None and found.header == "Bearer id.secret"
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(InvalidRequest, match="chmod 600"):
            read_secret(str(path))
    path.chmod(0o600)
    for content in (b"", b"\n", b"\xff", b"x" * 10_000):
        path.write_bytes(content)
        with pytest.raises(InvalidRequest) as caught:
            read_secret(str(path))
        assert "xxx" not in caught.value.message
    with pytest.raises(InvalidRequest, match="there is no file"):
        read_secret(str(tmp_path / "absent"))


def test_another_token_in_the_file_is_shown_soon(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def write(text: str, mode: int = 0o600) -> None:
        path.write_text(text)
        path.chmod(mode)

    write("id.old")
    found = Security(token_file=str(path)).credentials(read_secret)
    assert found is not None
    found.look(10.0)
    write("id.new")
    found.look(10.9)
    assert found.header == "Bearer id.old", "not with each request"
    found.look(11.0)
    assert found.header == "Bearer id.new"
    for of_no_use, mode in (("half", 0o600), ("id.other", 0o644), ("", 0o600)):
        write(of_no_use, mode)
        assert not found.are_others("Bearer id.new", 11.1)
        assert found.header == "Bearer id.new"
    path.unlink()
    assert not found.are_others("Bearer id.new", 11.2)
    write("id.last")
    assert found.are_others("Bearer id.new", 11.3), "at once, since a broker has refused it"
    assert (found.header, repr(found)) == ("Bearer id.last", "Credentials(Bearer)")


def test_a_password_that_was_given_stays() -> None:
    found = made(sasl_username="alice", sasl_password="pw")
    assert found is not None
    assert not found.are_others(found.header, 0.0)
