"""A JSON Web Token is judged by what it says, before its signature is looked at."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.jwt_tokens import AUDIENCE, ISSUER, NOW_S, claims, segment, unsigned
from tidelog.model.access import Principal
from tidelog.model.errors import NotAuthenticated
from tidelog.model.jwt import TOKEN_CHARS_MAX, JwtTerms, is_jwt, judged, taken_apart

TERMS = JwtTerms(("RS256",), ISSUER, (AUDIENCE, "other"), skew_s=30)
HEADER = {"alg": "RS256", "kid": "k1"}


def judge(header: object = HEADER, payload: object = None, terms: JwtTerms = TERMS) -> tuple[Principal, int]:
    token = taken_apart(unsigned(header, claims() if payload is None else payload))
    return judged(token, terms, NOW_S * 1000)


def cause(header: object = HEADER, payload: object = None) -> str:
    with pytest.raises(NotAuthenticated) as refused:
        judge(header, payload)
    assert "jwt" not in refused.value.message, "its caller is not told why"
    return refused.value.cause


def test_a_good_one_says_who_and_until_when() -> None:
    assert judge() == (Principal("User", "alice"), (NOW_S + 330) * 1000)
    assert judge(payload=claims(aud=["x", "other"], nbf=NOW_S + 29, iat=NOW_S)) == judge()
    assert judge(payload=claims(exp=NOW_S - 29)) == (Principal("User", "alice"), (NOW_S + 1) * 1000), "clocks differ"
    assert judge(payload=claims(email="bob"), terms=TERMS._replace(subject_claim="email"))[0].name == "bob"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": NOW_S - 30}, "jwt: expired"),
        ({"exp": None}, "jwt: no exp"),
        ({"exp": "1e9"}, "jwt: malformed"),
        ({"exp": True}, "jwt: malformed"),
        ({"exp": 10**400}, "jwt: malformed"),
        ({"exp": -1}, "jwt: malformed"),
        ({"nbf": NOW_S + 31}, "jwt: not valid yet"),
        ({"nbf": None, "iat": NOW_S + 31}, "jwt: not valid yet"),
        ({"nbf": "now"}, "jwt: malformed"),
        ({"iss": "https://issuer.example.com/"}, "jwt: issuer"),
        ({"iss": None}, "jwt: issuer"),
        ({"iss": [ISSUER]}, "jwt: issuer"),
        ({"aud": "tidelog2"}, "jwt: audience"),
        ({"aud": None}, "jwt: audience"),
        ({"aud": {"tidelog": 1}}, "jwt: audience"),
        ({"aud": [["tidelog"]]}, "jwt: audience"),
        ({"sub": None}, "jwt: subject"),
        ({"sub": ""}, "jwt: subject"),
        ({"sub": 7}, "jwt: subject"),
        ({"sub": "a\nb"}, "jwt: subject"),
        ({"sub": "a" * 250}, "jwt: subject"),
    ],
)
def test_a_claim_that_is_not_right(changes: dict[str, object], expected: str) -> None:
    assert cause(payload=claims(**changes)) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"alg": "none"}, "jwt: algorithm"),
        ({"alg": "HS256"}, "jwt: algorithm"),
        ({"alg": "rs256"}, "jwt: algorithm"),
        ({"alg": ["RS256"]}, "jwt: malformed"),
        ({}, "jwt: malformed"),
        ([], "jwt: malformed"),
        ({**HEADER, "kid": 1}, "jwt: malformed"),
        ({**HEADER, "crit": ["exp"], "exp": 1}, "jwt: crit"),
        ({**HEADER, "crit": []}, "jwt: crit"),
    ],
)
def test_a_header_that_is_not_right(header: object, expected: str) -> None:
    assert cause(header) == expected


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        (b'{"alg":"RS256","alg":"none"}', b"{}"),
        (b'{"alg":"RS256"}', b'{"sub":"alice","sub":"root"}'),
        (b'{"alg":"RS256"}', b'{"a":{"b":1,"b":2}}'),
        (b'{"alg":"RS256"}', b'{"exp":NaN}'),
        (b'{"alg":"RS256"}', b"[" * 4_000),
        (b'{"alg":"RS256"}', b'{"exp":%b}' % (b"9" * 5_000)),
        (b'{"alg":"RS256"}', b"\xff\xfe{"),
        (b"{", b"{}"),
    ],
)
def test_json_that_readers_may_take_differently_is_malformed(header: bytes, payload: bytes) -> None:
    assert cause(header, payload) == "jwt: malformed"


@pytest.mark.parametrize(
    "text",
    [
        "..",
        "a.b.",
        "a.b.c",
        f"{segment(HEADER)}.{segment(claims())}.",
        f"{segment(HEADER)}.{segment(claims())}.a b",
        f"{segment(HEADER)}=.{segment(claims())}.s",
        f"{segment(HEADER)}.{segment(claims())}.{'s' * TOKEN_CHARS_MAX}",
        "abcde.abcde.abcde",
    ],
)
def test_text_that_is_no_token(text: str) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        taken_apart(text)
    assert refused.value.cause == "jwt: malformed"


def test_tokens_of_ours_are_told_apart() -> None:
    assert is_jwt(unsigned(HEADER, claims()))
    assert not is_jwt("0a1b.secret")
    assert not is_jwt("a.b.\udcff")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))
CLAIMS = st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat"]), VALUES)


@given(CLAIMS, st.text(max_size=20))
def test_any_text_and_any_claims_are_taken_or_refused(changes: dict[str, object], text: str) -> None:
    with suppress(NotAuthenticated):
        taken_apart(text)
    with suppress(NotAuthenticated):
        judge(payload={**claims(), **changes})
