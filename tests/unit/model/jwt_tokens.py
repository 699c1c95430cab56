"""Tokens as an issuer makes them, and as nobody should."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

import jwt

ISSUER: Final = "https://issuer.example.com"
AUDIENCE: Final = "tidelog"
NOW_S: Final = 1_000_000


def claims(**changes: object) -> dict[str, Any]:
    """Returns the claims of a good token; None takes one away."""
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 300, **changes}
    return {name: value for name, value in made.items() if value is not None}


def segment(document: object) -> str:
    """Returns a part of a token; text stands for itself, so that it may be any."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(header: object, payload: object, signature: bytes = b"s") -> str:
    """Returns a token that nobody has signed."""
    return f"{segment(header)}.{segment(payload)}.{segment(signature)}"


def signed(header: Mapping[str, Any], payload: object, key: Any) -> str:
    """Returns a token that is signed, whatever is in it; `alg` of its header says how."""
    text = f"{segment(dict(header))}.{segment(payload)}"
    algorithm = jwt.PyJWS().get_algorithm_by_name(header["alg"])
    return f"{text}.{segment(algorithm.sign(text.encode(), algorithm.prepare_key(key)))}"
