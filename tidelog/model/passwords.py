"""Hashes passwords and verifies them. This is slow on purpose, so it runs in a thread and never on the event loop.

argon2id (RFC 9106) costs each guess 19 MiB and two passes over them (OWASP's parameters). The library for it comes with
the extra `tidelog[security]`, and is loaded when it is first needed. The keys of SCRAM (RFC 5802) are computed at the
same time, since that needs the password; 16,384 iterations are the most that Kafka allows.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from hashlib import pbkdf2_hmac
from types import ModuleType
from typing import Final

from tidelog.model.credentials import ScramKeys, User
from tidelog.model.errors import InvalidRequest

PASSES: Final = 2
MEMORY_KIB: Final = 19 * 1024
LANES: Final = 1
HASH_BYTES: Final = 32
SALT_BYTES: Final = 16
SCRAM_ITERATIONS: Final = 16_384
SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PASSWORD_BYTES_MIN: Final = 8
PASSWORD_BYTES_MAX: Final = 1_024


def check_library() -> str:
    """Returns why passwords cannot be used in this installation (a library is missing); empty if they can."""
    try:
        _argon2()
    except ImportError:
        return "passwords need the library argon2-cffi: pip install 'tidelog[security]'"
    return ""


def check_password(password: str) -> None:
    """Raises `InvalidRequest` if a password is too short, or so long that hashing it takes more time than others."""
    if not PASSWORD_BYTES_MIN <= len(password.encode()) <= PASSWORD_BYTES_MAX:
        raise InvalidRequest(f"a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes")


def made_user(name: str, password: str, salts: tuple[bytes, ...]) -> User:
    """Returns what is stored of a user: the hashes of the password. `salts` are three strings of `SALT_BYTES` random
    bytes."""
    first, *others = salts
    scram = tuple(_scram(kind, password, salt) for kind, salt in zip(SCRAM_HASHES, others, strict=True))
    return User(name, _hashed(password, first), scram)


def is_right(password_hash: str, password: str) -> bool:
    """Returns True if the hash is that of this password."""
    argon2 = _argon2()
    try:
        return bool(argon2.verify_secret(password_hash.encode(), password.encode(), argon2.Type.ID))
    except argon2.VerificationError:
        return False


def nobodys_hash(salt: bytes, digest: bytes) -> str:
    """Returns a hash that no password has, and that takes as long to verify as a real one."""
    salt_text, digest_text = (b64encode(part).rstrip(b"=").decode() for part in (salt, digest))
    return f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${salt_text}${digest_text}"


def _hashed(password: str, salt: bytes) -> str:
    argon2 = _argon2()
    made: bytes = argon2.hash_secret(password.encode(), salt, PASSES, MEMORY_KIB, LANES, HASH_BYTES, argon2.Type.ID)
    return made.decode()


def _scram(mechanism: str, password: str, salt: bytes) -> ScramKeys:
    kind = SCRAM_HASHES[mechanism]
    salted = pbkdf2_hmac(kind, password.encode(), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", kind)
    stored_key = _digest(kind, client_key)
    server_key = hmac.digest(salted, b"Server Key", kind)
    return ScramKeys(mechanism, salt.hex(), stored_key.hex(), server_key.hex(), SCRAM_ITERATIONS)


def _digest(kind: str, data: bytes) -> bytes:
    return hashlib.new(kind, data).digest()


def _argon2() -> ModuleType:
    import argon2.low_level  # noqa: PLC0415 -- an extra, which only clusters with passwords need

    return argon2.low_level
