"""SCRAM against the example of RFC 7677, and against clients that get it wrong."""

from __future__ import annotations

from base64 import b64decode

import pytest

from tests.unit.broker.face.test_login import Clock, Entropy
from tidelog.broker.face.login import Login
from tidelog.broker.face.scram_login import ScramExchange
from tidelog.model.credentials import Access, ScramKeys, User
from tidelog.model.errors import NotAuthenticated, TooManyAttempts
from tidelog.model.passwords import SCRAM_HASHES, _scram
from tidelog.model.scram import MESSAGE_BYTES_MAX, answer_first, read_first, verify_final

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def keys_of_the_example(monkeypatch: pytest.MonkeyPatch) -> ScramKeys:
    monkeypatch.setattr("tidelog.model.passwords.SCRAM_ITERATIONS", 4096)
    return _scram("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))


def test_the_example_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    server = answer_first(read_first(FIRST), keys_of_the_example(monkeypatch), SERVER_NONCE)
    assert server.text == f"r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert verify_final(server, FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_another_proof_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    server = answer_first(read_first(FIRST), keys_of_the_example(monkeypatch), SERVER_NONCE)
    assert verify_final(server, FINAL.replace(b"p=dHzb", b"p=eHzb")) is None
    assert verify_final(server, FINAL[: FINAL.index(b",p=")] + b",p=AAAA") is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=root,n=user,r=x",
        b"\xff",
        b"n,,n=" + b"u" * MESSAGE_BYTES_MAX + b",r=x",
    ],
)
def test_a_first_message_that_is_none(message: bytes) -> None:
    with pytest.raises(NotAuthenticated):
        read_first(message)


@pytest.mark.parametrize("change", [(b"biws", b"eSws"), (b"r=rOpr", b"r=xOpr"), (b",p=", b",q="), (b"V", b"*")])
def test_a_last_message_that_is_none(monkeypatch: pytest.MonkeyPatch, change: tuple[bytes, bytes]) -> None:
    server = answer_first(read_first(FIRST), keys_of_the_example(monkeypatch), SERVER_NONCE)
    with pytest.raises(NotAuthenticated):
        verify_final(server, FINAL.replace(*change))


def test_a_name_may_have_commas_and_equals_signs() -> None:
    assert read_first(b"n,,n=a=2Cb=3Dc,r=x").user == "a,b=c"


def login_of(user: User) -> Login:
    return Login(lambda: Access({user.name: user}), Clock(), Entropy())


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_an_unknown_user_looks_like_any_other_until_the_end(mechanism: str) -> None:
    alice = User("alice", "", (_scram(mechanism, "secret of alice", b"0" * 16),))
    login = login_of(alice)
    told = [
        login.begin_scram(ScramExchange(mechanism), b"n,,n=%b,r=x" % name, "h") for name in (b"alice", b"bob", b"bob")
    ]
    parts = [dict(part.split("=", 1) for part in text.decode().split(",")) for text in told]
    assert len({part["i"] for part in parts}) == 1
    assert parts[1]["s"] == parts[2]["s"] != parts[0]["s"]
    exchange = ScramExchange(mechanism)
    login.begin_scram(exchange, b"n,,n=bob,r=x", "h")
    with pytest.raises(NotAuthenticated):
        login.end_scram(exchange, b"c=biws,r=%b,p=AAAA" % exchange._server.nonce.encode(), "h")  # type: ignore[union-attr]  # begun


def test_failures_are_counted_as_those_of_passwords_are() -> None:
    login = login_of(User("alice", ""))
    for _ in range(5):
        login.begin_scram(ScramExchange("SCRAM-SHA-256"), b"n,,n=alice,r=x", "10.0.0.9")
    with pytest.raises(TooManyAttempts):
        login.begin_scram(ScramExchange("SCRAM-SHA-256"), b"n,,n=alice,r=x", "10.0.0.9")
