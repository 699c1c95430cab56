"""The keys of an issuer of JSON Web Tokens, from a file: a JWKS (RFC 7517), or public keys and certificates in PEM.

A key verifies the algorithms of its own kind and no others, so that nobody can sign with the text of a public key (RFC
8725, 3.1). The file may hold shared secrets (`kty` is `oct`) only if nobody else can read it; private keys, which could
make tokens, it may not hold at all. Whoever can write the file can make valid tokens, so only its owner may.

Errors about a file never contain the texts of libraries, which may quote its content. The libraries come with the extra
`security`, and are imported here only.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tidelog.config.errors import ConfigError
from tidelog.model.jwt import Jwt

FILE_BYTES_MAX: Final = 256 << 10
KEYS_MAX: Final = 64
TRIED_MAX: Final = 4
"""Maximum keys that are tried for a token; with more candidates, the token is refused."""
RSA_BITS: Final = (2_048, 8_192)
OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
OF_CURVE: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
OF_SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Least bytes of a shared secret, by algorithm."""
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


class JwtKey(NamedTuple):
    """A key, with the algorithms that it may verify."""

    key_id: str | None
    algorithms: tuple[str, ...]
    material: Any
    name: str
    """Hash over the key's id, algorithms and bytes."""


class KeySet:
    """The keys of one file, which verify JWTs."""

    def __init__(self, keys: Sequence[JwtKey]) -> None:
        self._keys = tuple(keys)
        self._names = frozenset(key.name for key in keys)
        self._verifiers = {name: jwt.PyJWS().get_algorithm_by_name(name) for key in keys for name in key.algorithms}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def verified_by(self, token: Jwt) -> str | None:
        """Returns the name of the key that verifies the token's signature; None if no key does. Tried are keys with the
        id that the token names and keys without an id; for a token without an id, all keys, if there are at most
        `TRIED_MAX`."""
        # A key is tried with algorithms of its own kind alone. Otherwise anybody could sign with HS256 and the text of
        # the public key as the secret (RFC 8725, 3.1).
        candidates = [key for key in self._keys if token.algorithm in key.algorithms and _may_be(key, token.key_id)]
        # Each try is a verification on the event loop, and a stranger can cause it.
        if not 0 < len(candidates) <= TRIED_MAX:
            return None
        verifier = self._verifiers[token.algorithm]
        return next(
            (key.name for key in candidates if verifier.verify(token.signed, key.material, token.signature)), None
        )


def _may_be(key: JwtKey, key_id: str | None) -> bool:
    # A key without an id, as PEM has none, may be the one that a token names.
    return key_id is None or key.key_id in (None, key_id)


def load_keys(path: str, algorithms: Sequence[str]) -> KeySet:
    """Reads the keys that can verify these algorithms from a file. Raises `ConfigError`, which says what is wrong with
    the file."""
    content, mode = _content(path)
    try:
        keys = _of_pem(content) if b"-----BEGIN " in content else _of_jwks(content)
    except _Unfit as error:
        raise ConfigError(f"{path}: {error}") from None
    # Whoever reads a shared secret can make tokens; public keys may be read by all.
    if any(isinstance(key.material, bytes) for key in keys) and mode & 0o077:
        raise ConfigError(f"{path} holds a secret, and others than its owner may use it; chmod 600 {path}")
    usable = [
        key._replace(algorithms=fitting)
        for key in keys
        if (fitting := tuple(algorithm for algorithm in key.algorithms if algorithm in algorithms))
    ]
    if not usable:
        raise ConfigError(f"{path} holds no key for {', '.join(algorithms)}")
    # With two keys of one id and algorithm, the file's order would decide which of them is meant.
    ids = [(key.key_id, algorithm) for key in usable for algorithm in key.algorithms if key.key_id is not None]
    if len(set(ids)) < len(ids) or len(usable) > KEYS_MAX:
        raise ConfigError(f"{path} has a kid twice, or more than {KEYS_MAX} keys")
    return KeySet(usable)


class _Unfit(Exception):
    """The key file contains something that it must not contain."""


def _content(path: str) -> tuple[bytes, int]:
    try:
        # O_NONBLOCK, or a FIFO in the file's place would hang the broker. Mode and content are of one descriptor, so
        # nobody can put another file there in between.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            # One byte more than it may have tells a file that is too long, without reading all of it.
            content = file.read(FILE_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if mode & 0o022:
        raise ConfigError(f"others than its owner may write {path}, and so say who is who; chmod go-w {path}")
    if not 0 < len(content) <= FILE_BYTES_MAX:
        raise ConfigError(f"{path} must be a file with keys, of up to {FILE_BYTES_MAX:,} bytes")
    return content, mode


# -- JWKS ------------------------------------------------------------------------------------------------------------


def _of_jwks(content: bytes) -> list[JwtKey]:
    try:
        keys = json.loads(content)["keys"]
        documents = [dict(document) for document in keys]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _Unfit('it is neither PEM nor a JWKS, {"keys": [...]}') from None
    return [key for number, document in enumerate(documents) for key in _of_jwk(number, document)]


def _of_jwk(number: int, document: Mapping[str, Any]) -> list[JwtKey]:
    """Returns the keys of a JWK: one, or none if it is not for signatures."""
    # `d` is the private part of RSA, EC and OKP keys alike. Refused, not ignored: the file's owner has to learn that a
    # secret lies where it should not.
    if "d" in document:
        raise _Unfit(f"key {number} is a private one, which only the issuer may have; leave its public half here")
    kind, use = document.get("kty"), document.get("use", "sig")
    # Issuers publish keys for encryption in the same file; those are nobody's error.
    if use != "sig" or kind not in ("RSA", "EC", "OKP", "oct"):
        return []
    key_id = document.get("kid")
    try:
        material = jwt.PyJWK(dict(document)).key
    except Exception:  # noqa: BLE001 -- whatever a library makes of it, its words may quote the key
        raise _Unfit(f"key {number} cannot be read") from None
    if not isinstance(key_id, str | None):
        raise _Unfit(f"the kid of key {number} is no text")
    fitting, declared = _algorithms(material), document.get("alg")
    return _made(key_id, tuple(name for name in fitting if declared in (None, name)), material)


# -- PEM -------------------------------------------------------------------------------------------------------------


def _of_pem(content: bytes) -> list[JwtKey]:
    keys = []
    for number, block in enumerate(_PEM.finditer(content)):
        if b"PRIVATE" in block[1]:
            raise _Unfit("it holds a private key, which only the issuer may have; leave the public key here")
        try:
            is_certificate = block[1] == b"CERTIFICATE"
            material = (
                x509.load_pem_x509_certificate(block[0]).public_key()
                if is_certificate
                else serialization.load_pem_public_key(block[0])
            )
        except Exception:  # noqa: BLE001 -- the words of a library may quote the file
            raise _Unfit(f"block {number} of PEM cannot be read") from None
        keys += _made(None, _algorithms(material), material)
    return keys


# -- both ------------------------------------------------------------------------------------------------------------


def _algorithms(material: Any) -> tuple[str, ...]:
    """Returns the algorithms that a key can verify; none for one that is too weak, or of another kind."""
    if isinstance(material, bytes):
        return tuple(name for name, least in OF_SECRETS.items() if len(material) >= least)
    if isinstance(material, rsa.RSAPublicKey):
        # Too weak below; above, one verification would hold the event loop for long.
        return OF_RSA if RSA_BITS[0] <= material.key_size <= RSA_BITS[1] else ()
    if isinstance(material, ec.EllipticCurvePublicKey):
        return OF_CURVE.get(material.curve.name, ())
    return ("EdDSA",) if isinstance(material, ed25519.Ed25519PublicKey) else ()


def _made(key_id: str | None, algorithms: tuple[str, ...], material: Any) -> list[JwtKey]:
    if not algorithms:
        return []
    raw = material if isinstance(material, bytes) else _der(material)
    # Over id, algorithms and key: what was verified by a key counts no more when any of these has changed.
    name = sha256(b"|".join([(key_id or "").encode(), *map(str.encode, sorted(algorithms)), raw])).hexdigest()
    return [JwtKey(key_id, algorithms, material, name)]


def _der(material: Any) -> bytes:
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    der: bytes = material.public_bytes(serialization.Encoding.DER, kind)
    return der
