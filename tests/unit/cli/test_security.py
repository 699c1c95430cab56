"""How a command's client connects: what its options and its file say, and who it is by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.security import client_arguments, secured
from tidelog.cli.terminal import UsageError

VARIABLES = ("TIDELOG_TOKEN_FILE", "TIDELOG_USERNAME", "TIDELOG_PASSWORD_FILE")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def connected_as(*properties: str, file: Path | None = None) -> dict[str, object]:
    def command(bootstrap: str) -> dict[str, object]:
        return dict(client_arguments())

    found: dict[str, object] = secured(command)(
        bootstrap="x", command_config=None if file is None else str(file), command_property=list(properties)
    )
    return found


def test_the_environment_says_who_is_calling_unless_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connected_as() == {}
    monkeypatch.setenv("TIDELOG_TOKEN_FILE", "mine.token")
    assert connected_as("ssl.ca.location=ca.pem") == {"ssl_ca_location": "ca.pem", "token_file": "mine.token"}
    assert connected_as("token.file=other.token") == {"token_file": "other.token"}
    user = ("sasl.username=alice", "sasl.password.file=pw")
    assert connected_as(*user) == {"sasl_username": "alice", "sasl_password_file": "pw"}


def test_a_command_line_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# who and where\nssl.truststore.location = ca.pem\ntoken.file=a.token\n")
    assert connected_as(file=file) == {"ssl_ca_location": "ca.pem", "token_file": "a.token"}
    assert connected_as("token.file=b.token", file=file)["token_file"] == "b.token"


def test_a_password_is_taken_from_a_file_only() -> None:
    with pytest.raises(UsageError, match=r"give sasl\.password\.file") as caught:
        connected_as("sasl.username=alice", "sasl.password=canary")
    assert "canary" not in str(caught.value)
