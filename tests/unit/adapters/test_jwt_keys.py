"""Keys of tokens from files: what may be in one, who may touch it, and what each key verifies."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.model.jwt_tokens import claims, signed
from tidelog.adapters.jwt_keys import KeySet, load_keys
from tidelog.config.errors import ConfigError
from tidelog.model.jwt import taken_apart

RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
SECRET = b"s" * 32


def pem(key: Any) -> bytes:
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    made: bytes = key.public_key().public_bytes(serialization.Encoding.PEM, kind)
    return made


def jwk(key: Any, **more: object) -> dict[str, Any]:
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
        bytes: jwt.algorithms.HMACAlgorithm,
    }
    kind = next(found for each, found in kinds.items() if isinstance(key, each))
    return {**kind.to_jwk(key if isinstance(key, bytes) else key.public_key(), as_dict=True), **more}


def write(path: Path, content: bytes | list[dict[str, Any]], mode: int = 0o644) -> str:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps({"keys": content}).encode())
    path.chmod(mode)
    return str(path)


def keys(path: Path, content: bytes | list[dict[str, Any]], *algorithms: str, mode: int = 0o644) -> KeySet:
    return load_keys(write(path / "keys", content, mode), algorithms)


def verifies(found: KeySet, key: Any, algorithm: str, **header: object) -> bool:
    name = found.verified_by(taken_apart(signed({"alg": algorithm, **header}, claims(), key)))
    return name is not None and name in found


def why(path: Path, content: bytes | list[dict[str, Any]], *algorithms: str, mode: int = 0o644) -> str:
    with pytest.raises(ConfigError) as refused:
        keys(path, content, *algorithms, mode=mode)
    return refused.value.message


def test_each_kind_of_key_verifies_its_own(tmp_path: Path) -> None:
    names = ("RS256", "PS384", "ES256", "EdDSA")
    for content in ([jwk(RSA), jwk(EC), jwk(ED)], pem(RSA) + pem(EC) + pem(ED)):
        found = keys(tmp_path, content, *names)
        assert len(found) == 3
        assert verifies(found, RSA, "RS256") and verifies(found, RSA, "PS384", kid="any")
        assert verifies(found, EC, "ES256") and verifies(found, ED, "EdDSA")
        assert not verifies(found, RSA, "RS384"), "the settings do not name it"
        assert not verifies(found, ec.generate_private_key(ec.SECP256R1()), "ES256")


def test_the_text_of_a_public_key_is_no_secret_to_sign_with(tmp_path: Path) -> None:
    found = keys(tmp_path, pem(RSA), "RS256", "HS256")
    token = signed({"alg": "HS256"}, claims(), b"x" * 32).rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(token.encode(), pem(RSA))
    assert found.verified_by(taken_apart(token + ".abcd")._replace(signature=signature)) is None


def test_a_key_is_found_by_its_id(tmp_path: Path) -> None:
    found = keys(tmp_path, [jwk(EC, kid="a"), jwk(RSA, kid="b", alg="RS256")], "ES256", "RS256", "PS256")
    assert verifies(found, EC, "ES256", kid="a") and verifies(found, EC, "ES256")
    assert not verifies(found, EC, "ES256", kid="b")
    assert not verifies(found, EC, "ES256", kid="c"), "unknown"
    assert verifies(found, RSA, "RS256", kid="b")
    assert not verifies(found, RSA, "PS256", kid="b"), "the key says what it is for"


def test_few_keys_are_tried_with_a_token_that_names_none(tmp_path: Path) -> None:
    others = [ec.generate_private_key(ec.SECP256R1()) for _ in range(4)]
    found = keys(tmp_path, [jwk(each, kid=str(number)) for number, each in enumerate([*others, EC])], "ES256")
    assert verifies(found, EC, "ES256", kid="4")
    assert not verifies(found, EC, "ES256")


def test_a_name_of_a_key_outlives_its_file(tmp_path: Path) -> None:
    one = keys(tmp_path, [jwk(EC, kid="a")], "ES256")
    two = keys(tmp_path, [jwk(RSA, kid="b"), jwk(EC, kid="a")], "ES256", "RS256")
    three = keys(tmp_path, [jwk(ec.generate_private_key(ec.SECP256R1()), kid="a")], "ES256")
    name = one.verified_by(taken_apart(signed({"alg": "ES256"}, claims(), EC)))
    assert name in two and name not in three


def test_secrets_are_for_their_owner(tmp_path: Path) -> None:
    assert "chmod 600" in why(tmp_path, [jwk(SECRET)], "HS256")
    assert "chmod 600" in why(tmp_path, [jwk(RSA), jwk(SECRET)], "RS256"), "even if it is of no use"
    found = keys(tmp_path, [jwk(SECRET)], "HS256", "HS512", mode=0o600)
    assert verifies(found, SECRET, "HS256")
    assert not verifies(found, SECRET, "HS512"), "too short for it"
    assert "no key for RS256" in why(tmp_path, [jwk(SECRET)], "RS256", mode=0o600)


def test_whoever_can_write_the_file_says_who_is_who(tmp_path: Path) -> None:
    assert "chmod go-w" in why(tmp_path, pem(EC), "ES256", mode=0o664)


def test_what_is_no_use_is_told_without_what_it_holds(tmp_path: Path) -> None:
    private = RSA.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    weak = rsa.generate_private_key(65_537, 1_024)
    shown = jwk(EC)
    told = {
        "private key": why(tmp_path, private, "RS256"),
        "private one": why(tmp_path, [{**shown, "d": shown["x"]}], "ES256"),
        "key 0 cannot be read": why(tmp_path, [{**shown, "x": "canary"}], "ES256"),
        "block 0": why(tmp_path, b"-----BEGIN PUBLIC KEY-----\ncanary\n-----END PUBLIC KEY-----", "ES256"),
        "neither PEM nor a JWKS": why(tmp_path, b"canary", "ES256"),
        "twice": why(tmp_path, [jwk(EC, kid="a"), jwk(EC, kid="a")], "ES256"),
        "no key for ES256": why(tmp_path, [jwk(EC, use="enc"), jwk(RSA), {"kty": "new"}], "ES256"),
        "no key for RS256": why(tmp_path, pem(weak), "RS256"),
    }
    for expected, message in told.items():
        assert expected in message
        assert "canary" not in message
    with pytest.raises(ConfigError, match="cannot read"):
        load_keys(str(tmp_path / "none"), ["ES256"])


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA")])
def test_any_signature_is_right_or_not(tmp_path: Path, key: Any, algorithm: str) -> None:
    found = keys(tmp_path, [jwk(key)], algorithm)
    token = taken_apart(signed({"alg": algorithm}, claims(), key))
    assert found.verified_by(token) is not None
    good = token.signature
    for wrong in (
        b"",
        b"\x00" * len(good),
        good[:-1],
        good + b"\x00",
        bytes([good[0] ^ 1]) + good[1:],
        b"\xff" * 5_000,
    ):
        assert found.verified_by(token._replace(signature=wrong)) is None
    assert found.verified_by(token._replace(signed=token.signed + b"x")) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["RSA", "EC", "oct", "sig"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["kty", "kid", "alg", "use", "crv", "x", "y", "n", "e", "k", "d"])


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=6), max_size=2) | JSON)
@example([{**jwk(EC), "alg": ["ES256"]}])
@example([{**jwk(EC), "kid": {}}])
@example([{**jwk(EC), "use": []}])
def test_any_file_is_taken_or_refused(made: object) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "keys"
        path.write_text(json.dumps({"keys": made}))
        path.chmod(0o600)
        with suppress(ConfigError):
            load_keys(str(path), ["ES256", "RS256", "HS256"])
