"""JSON Web Tokens (RFC 7519, RFC 8725): parses a token and checks its claims. `JwtKeys` verifies the signature.

A library would do all three, but is used for signatures only: its rules for claims differ from those of other libraries
and versions, and use its own clock. Here the rules are in one place:

- The algorithm is one that the settings name, so `none` is refused, and a key verifies only algorithms of its own kind.
- `crit` is refused whatever it names: no extension is known here. So is JSON that says a name twice, since two readers
  may take one of each.
- `exp`, `iss` and `aud` are required. `nbf` and `iat`, if present, must not lie in the future.
- Keys in the token (`jwk`, `jku`, `x5c`, `x5u`) are ignored.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tidelog.model.access import Principal, check_principal
from tidelog.model.credentials import refused
from tidelog.model.errors import InvalidRequest, NotAuthenticated

TOKEN_CHARS_MAX: Final = 8_192
SECONDS_MAX: Final = 2.0**40
"""Largest time that a claim may have, in seconds since 1970: some 35,000 years from now."""
_SHAPE: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


class JwtTerms(NamedTuple):
    """The settings that a token has to satisfy."""

    algorithms: tuple[str, ...]
    issuer: str
    audiences: tuple[str, ...]
    """Accepted audiences; a token must name one of them."""
    subject_claim: str = "sub"
    skew_s: int = 30
    """Tolerated difference in seconds between the issuer's clock and the broker's."""


class Jwt(NamedTuple):
    """A parsed token; nothing of it is verified."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class JwtKeys(Protocol):
    """The keys that verify tokens. The object is replaced when any key changes."""

    def verified_by(self, token: Jwt) -> str | None:
        """Returns the name of the key that verifies the token's signature; None if no key does."""

    def __contains__(self, key: object) -> bool:
        """Returns True if there is a key of this name."""


def is_jwt(text: str) -> bool:
    """Returns True if the text has the form of a JWT; tidelog's own tokens, `ID.SECRET`, do not."""
    return text.count(".") == 2 and text.isascii()


def taken_apart(text: str) -> Jwt:
    """Parses a token. Raises `NotAuthenticated` if it is malformed."""
    parts = _SHAPE.fullmatch(text) if len(text) <= TOKEN_CHARS_MAX else None
    if parts is None:
        raise _refused("malformed")
    header = _document(parts[1])
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise _refused("malformed")
    if "crit" in header:
        raise _refused("crit")
    signed = text[: parts.end(2)].encode()
    return Jwt(algorithm, key_id, _document(parts[2]), signed, _bytes(parts[3]))


def judged(token: Jwt, terms: JwtTerms, now_ms: int) -> tuple[Principal, int]:
    """Checks a token's algorithm and claims. Returns its principal, and its expiry in ms since 1970. Raises
    `NotAuthenticated`."""
    if token.algorithm not in terms.algorithms:
        raise _refused("algorithm")
    claims, now_s = token.claims, now_ms / 1000
    ends_s = _time(claims, "exp") + terms.skew_s
    if not now_s < ends_s:
        raise _refused("expired")
    if any(name in claims and _time(claims, name) > now_s + terms.skew_s for name in ("nbf", "iat")):
        raise _refused("not valid yet")
    if claims.get("iss") != terms.issuer:
        raise _refused("issuer")
    if not set(_texts(claims.get("aud"))) & set(terms.audiences):
        raise _refused("audience")
    return _principal(claims.get(terms.subject_claim)), int(1000 * ends_s)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(_bytes(text), object_pairs_hook=_once_each, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _refused("malformed") from None
    if not isinstance(document, dict):
        raise _refused("malformed")
    return document


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is there twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise _refused("malformed") from None


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(f"no {name}" if value is None else "malformed")
    if not 0 <= value <= SECONDS_MAX:
        raise _refused("malformed")
    return float(value)


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def _principal(name: object) -> Principal:
    try:
        return check_principal(f"User:{name}") if isinstance(name, str) else _nobody()
    except InvalidRequest:
        return _nobody()


def _nobody() -> Principal:
    raise _refused("subject")


def _refused(cause: str) -> NotAuthenticated:
    return refused(f"jwt: {cause}")
