"""The server's side of SCRAM (RFC 5802, RFC 7677): a client proves that it knows a password, without sending it.

```
client first   n,,n=alice,r=CLIENT                    server first   r=CLIENT+SERVER,s=SALT,i=ITERATIONS
client final   c=biws,r=CLIENT+SERVER,p=PROOF         server final   v=SIGNATURE
```

Channel binding and authorization ids (login on behalf of another user) are not supported.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from tidelog.model.credentials import ScramKeys, refused
from tidelog.model.passwords import SCRAM_HASHES

MESSAGE_BYTES_MAX: Final = 4_096
_HEADERS: Final = ("n,,", "y,,")


class ClientFirst(NamedTuple):
    """The client's first message."""

    header: str
    bare: str
    """The message without its GS2 header (`n,,`); a part of what the client's proof covers."""
    user: str
    nonce: str


class ServerFirst(NamedTuple):
    """The server's first message as `text`, with the client's first message, the user's keys and the joint nonce."""

    first: ClientFirst
    keys: ScramKeys
    nonce: str
    text: str


def read_first(message: bytes) -> ClientFirst:
    """Parses the client's first message. Raises `NotAuthenticated` if it is malformed, or requests an unsupported
    feature."""
    text = _text(message)
    header, bare = text[:3], text[3:]
    parts = bare.split(",")
    if header not in _HEADERS or len(parts) < 2 or not parts[0].startswith("n=") or not parts[1].startswith("r="):
        raise refused("malformed")
    user, nonce = parts[0][2:].replace("=2C", ",").replace("=3D", "="), parts[1][2:]
    if not user or not nonce:
        raise refused("malformed")
    return ClientFirst(header, bare, user, nonce)


def answer_first(first: ClientFirst, keys: ScramKeys, server_nonce: str) -> ServerFirst:
    """Returns the server's first message. The keys may be made up for a user that does not exist: then no proof is
    right."""
    nonce = first.nonce + server_nonce
    salt = b64encode(bytes.fromhex(keys.salt)).decode()
    return ServerFirst(first, keys, nonce, f"r={nonce},s={salt},i={keys.iterations}")


def verify_final(server: ServerFirst, message: bytes) -> bytes | None:
    """Returns the server's final message if the client's final message proves the password, None if it does not. Raises
    `NotAuthenticated` if the message is malformed."""
    text = _text(message)
    without_proof, comma, proof_text = text.rpartition(",p=")
    parts = without_proof.split(",")
    binding = b64encode(server.first.header.encode()).decode()
    if not comma or len(parts) < 2 or parts[0] != f"c={binding}" or parts[1] != f"r={server.nonce}":
        raise refused("malformed")
    kind = SCRAM_HASHES[server.keys.mechanism]
    said = f"{server.first.bare},{server.text},{without_proof}".encode()
    stored_key = bytes.fromhex(server.keys.stored_key)
    signature = hmac.digest(stored_key, said, kind)
    try:
        proof = b64decode(proof_text, validate=True)
    except (binascii.Error, ValueError):
        raise refused("malformed") from None
    if len(proof) != len(signature):
        return None
    client_key = bytes(masked ^ mask for masked, mask in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(kind, client_key).digest(), stored_key):
        return None
    return b"v=" + b64encode(hmac.digest(bytes.fromhex(server.keys.server_key), said, kind))


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise refused("malformed")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise refused("malformed") from None
