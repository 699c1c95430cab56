"""A client's side of SCRAM: against the example of RFC 7677, the broker's side, and servers that get it wrong."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import InvalidRequest
from tidelog.model.kafka_wire import Malformed
from tidelog.model.passwords import SCRAM_HASHES, _scram
from tidelog.model.scram import MESSAGE_BYTES_MAX, answer_first, read_first, verify_final
from tidelog.transport.frames.login import SCRAM, login_of
from tidelog.transport.frames.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client_of_the_example() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def at_the_end() -> ScramClient:
    client = client_of_the_example()
    challenge = client.read_challenge(SERVER_FIRST)
    assert client.final(challenge, client.salted(challenge)) == FINAL
    return client


def test_the_example_of_the_rfc() -> None:
    assert client_of_the_example().first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    at_the_end().verify(SERVER_FINAL)
    at_the_end().verify(SERVER_FINAL + b",x=an extension")


KEYS = {mechanism: _scram(mechanism, "pässwörd", b"0" * 16) for mechanism in SCRAM_HASHES}


@given(name=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20))
@pytest.mark.parametrize("mechanism", SCRAM)
def test_the_broker_understands_every_name(mechanism: str, name: str) -> None:
    assert read_first(ScramClient(mechanism, name, "", "x").first()).user == name


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("password", ["pässwörd", "another"])
def test_both_ends_agree_for_the_right_password_alone(mechanism: str, password: str) -> None:
    client = ScramClient(mechanism, "alice", password, NONCE)
    server = answer_first(read_first(client.first()), KEYS[mechanism], "more")
    challenge = client.read_challenge(server.text.encode())
    answer = verify_final(server, client.final(challenge, client.salted(challenge)))
    if password == "another":
        assert answer is None
    else:
        assert answer is not None
        client.verify(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"e=unknown-user",
        SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096",
        SERVER_FIRST.replace(b"s=W22", b"s=W2"),
        SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="),
        SERVER_FIRST.replace(b"i=4096", b"i=-4096"),
        SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 4_000),
        b"m=must be known," + SERVER_FIRST,
        SERVER_FIRST + b",x=" + b"x" * MESSAGE_BYTES_MAX,
    ],
)
def test_a_first_message_that_does_not_answer_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        client_of_the_example().read_challenge(message)


@pytest.mark.parametrize("iterations", [1, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1, 2**31])
def test_a_server_can_ask_neither_for_little_nor_for_endless_work(iterations: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{iterations} iterations"):
        client_of_the_example().read_challenge(SERVER_FIRST.replace(b"4096", b"%d" % iterations))


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    for proof in (b"v=", b"v=AAAA", b"v=" + b64encode(bytes(32))):
        with pytest.raises(InvalidRequest, match="another server"):
            at_the_end().verify(proof)
    for message in (b"", b"e=other-error", b"v=*", b"v=6rr\xff"):
        with pytest.raises(Malformed):
            at_the_end().verify(message)


def test_mechanisms_go_with_what_is_shown_and_where() -> None:
    basic = "Basic " + b64encode(b"alice:p:w").decode()
    assert login_of(basic, is_encrypted=False).mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    inside_tls = login_of(basic, is_encrypted=True)
    assert (inside_tls.mechanisms[0], inside_tls.message) == ("PLAIN", b"\0alice\0p:w")
    assert (inside_tls.user, inside_tls.password) == ("alice", "p:w")
    assert "p:w" not in repr(inside_tls)
    assert login_of("Bearer a.b", is_encrypted=False).mechanisms == ()
    assert login_of("Bearer a.b", is_encrypted=True).mechanisms == ("OAUTHBEARER",)
