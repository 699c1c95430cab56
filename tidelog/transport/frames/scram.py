"""SCRAM (RFC 5802, RFC 7677), the client's side: it proves that it knows a password without sending it, and the server
proves that it knows the password's keys. `model/scram.py` has the messages, and the server's side.

A stranger who takes the server's place learns what a guess of the password has to match. So that a guess costs what it
should, fewer iterations than RFC 7677's minimum are refused; and more than `ITERATIONS_MAX`, which would only keep a
thread of this client busy. A password is its UTF-8 bytes, as for the broker and for Kafka: nothing is normalised.

Pure. `salted` is slow on purpose: for a thread, never the event loop.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest
from tidelog.model.kafka_wire import Malformed
from tidelog.model.passwords import SCRAM_HASHES
from tidelog.model.scram import MESSAGE_BYTES_MAX

NONCE_BYTES: Final = 18
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
"""Maximum hash iterations that the client performs when a server asks for them: they take about half a second of CPU.
tidelog's brokers ask for 16,384, the most that Kafka allows."""
_HEADER: Final = "n,,"
_BINDING: Final = b64encode(_HEADER.encode()).decode()
_SERVER_FIRST: Final = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(?:,.*)?")


class Challenge(NamedTuple):
    """The server's first message."""

    text: str
    nonce: str
    """The client's nonce, followed by the server's."""
    salt: bytes
    iterations: int


class ScramClient:
    """The login of a user by one mechanism: `first`, `read_challenge`, `salted`, `final`, `verify`, in this order."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        """`nonce` is a random text, new for each login, without a comma."""
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""
        """The signature that the server's last message must have; set by `final`."""

    def first(self) -> bytes:
        """Returns the client's first message."""
        return (_HEADER + self._bare).encode()

    def read_challenge(self, message: bytes) -> Challenge:
        """Reads the server's first message. Raises `Malformed`, and `InvalidRequest` unless it asks for
        `ITERATIONS_MIN` to `ITERATIONS_MAX` iterations."""
        found = _SERVER_FIRST.fullmatch(_text(message))
        if found is None or found[1] == self._nonce or not found[1].startswith(self._nonce):
            raise Malformed("its first message of SCRAM does not answer this client's")
        iterations = int(found[3])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise InvalidRequest(
                f"it asks for {iterations} iterations of SCRAM; this client does {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        return Challenge(found[0], found[1], _decoded(found[2]), iterations)

    def salted(self, challenge: Challenge) -> bytes:
        """Returns the hash (PBKDF2) of the password, with the challenge's salt and number of iterations."""
        return hashlib.pbkdf2_hmac(self._hash, self._password, challenge.salt, challenge.iterations)

    def final(self, challenge: Challenge, salted: bytes) -> bytes:
        """Returns the client's last message, with its proof."""
        without_proof = f"c={_BINDING},r={challenge.nonce}"
        said = f"{self._bare},{challenge.text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), said, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), said, self._hash)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Reads the server's last message. Raises `InvalidRequest` if its proof is wrong, `Malformed` if there is
        none."""
        text = _text(message)
        if not text.startswith("v="):
            raise Malformed("its last message of SCRAM has no proof")
        if not hmac.compare_digest(_decoded(text[2:].partition(",")[0]), self._signature):
            raise InvalidRequest("it has not proved that it knows the user's password: this may be another server")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of SCRAM has {len(message)} bytes, and more than {MESSAGE_BYTES_MAX} are not read")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Malformed("a message of SCRAM is no text") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("a message of SCRAM has what is not base64") from None
