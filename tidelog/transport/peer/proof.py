"""The proofs by which two brokers show each other that they know their cluster's secret, without saying it.

    caller                           answerer
    challenge: node, nonce    -->
                              <--    challenge: node, nonce
    hello, and its proof      -->
                              <--    hello, and its proof

A proof is an HMAC, keyed with the secret, of the connection's *channel*, of what both have said on it so far, of the
hello that it comes with, and of who gives it. The channel is what TLS knows of the two ends: the digests of both
certificates (as RFC 5929 binds a channel to the server's). Somebody in between has others to show, to one end or to
both, and so a proof is good for the connection alone that it was made on. Without TLS there is no channel. The nonces
are drawn for each connection, so a proof is worth nothing on another one, and one that is sent back proves nothing. The
caller proves first: who only dials learns of the answerer its node id, and nothing that a secret could be guessed by.
The caller proves nothing to another node than the one that it means.

Hellos and messages that follow need no proof: whoever can put frames into a connection of others can also read it, and
only encryption (TLS) helps against that. With both, neither a stolen key of the CA nor a stolen secret is enough.
`Proofs` belongs to one end of one connection; nothing here knows of frames.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from tidelog.model.ports import Entropy

DOMAIN: Final = b"tidelog peer proof 1"
"""No other use of the secret computes an HMAC of the same bytes."""
NONCE_BYTES: Final = 32


Channel = tuple[bytes, bytes]
"""The digests of the caller's certificate and of the answerer's."""
NO_CHANNEL: Final[Channel] = (b"", b"")
"""The place of the channel where there is no TLS."""


class Role(enum.Enum):
    """The end of a connection that gives a proof."""

    CALLER = b"caller"
    ANSWERER = b"answerer"


class Challenge(msgspec.Struct, frozen=True):
    """Asks the other end for a proof that was made for this connection."""

    node_id: int
    """The node that asks."""
    nonce: Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]

    @classmethod
    def draw(cls, node_id: int, entropy: Entropy) -> Challenge:
        """Draws a challenge that nobody else ever gets."""
        return cls(node_id, bytes.fromhex(entropy.token_hex(NONCE_BYTES)))


class ClusterSecret:
    """A key that all brokers of a cluster know, and nobody else. It is never shown."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "ClusterSecret(...)"

    def proof(self, role: Role, said: Sequence[bytes], channel: Channel = NO_CHANNEL) -> bytes:
        """Returns the proof of one end, over all that was said."""
        # Each part comes with its length, so that no two conversations are the same bytes; and with the role, so that a
        # proof that is sent back to who gave it proves nothing.
        parts = (DOMAIN, role.value, *channel, *said)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")


class Proofs:
    """The conversation on one connection, as one of its ends has it. The order of what is said is fixed, see above."""

    def __init__(self, secret: ClusterSecret, role: Role, certificates: Channel = NO_CHANNEL) -> None:
        """`certificates` are the digests of this end's certificate, and of the other's."""
        self._secret = secret
        self._role = role
        self._channel = certificates if role is Role.CALLER else certificates[::-1]
        self._said: list[bytes] = []
        """Challenges and hellos as they were sent, of both ends."""

    @property
    def may_be_challenged(self) -> bool:
        """True until the other end's challenge has come; the caller's own goes before it."""
        return len(self._said) == (self._role is Role.CALLER)

    @property
    def may_be_proved(self) -> bool:
        """True if both have challenged, and it is the other end's turn to prove."""
        return len(self._said) == 2 + (self._role is Role.CALLER)

    def said(self, challenge: bytes) -> None:
        """Notes a challenge, of either end."""
        self._said.append(challenge)

    def prove(self, hello: bytes) -> bytes:
        """Returns the proof to send with this end's first hello."""
        self._said.append(hello)
        return self._secret.proof(self._role, self._said, self._channel)

    def is_proved(self, hello: bytes, proof: bytes) -> bool:
        """Judges the other end's first hello."""
        role = Role.ANSWERER if self._role is Role.CALLER else Role.CALLER
        self._said.append(hello)
        return hmac.compare_digest(self._secret.proof(role, self._said, self._channel), proof)


def secret_missing(node_id: int, role: Role, *, is_mine: bool) -> str:
    """Says which end has no secret while the other has one. A log repeats nothing that a stranger says of itself."""
    has = "no cluster secret" if is_mine else "a cluster secret"
    return _same_file(f"node {node_id} has {has}, and {_other(role)} has {'one' if is_mine else 'none'}")


def secrets_differ(node_id: int, role: Role, *, has_channel: bool) -> str:
    """Says that a proof was wrong."""
    between = ", or somebody stands between them, with certificates of the same CA" if has_channel else ""
    return _same_file(f"node {node_id} has another cluster secret than {_other(role)}{between}")


def _other(role: Role) -> str:
    return "the broker that it calls" if role is Role.CALLER else "the broker that calls it"


def _same_file(problem: str) -> str:
    return (
        f"{problem}; cluster.secret.file (of a log by itself: --secret-file) must name a file with the same content on "
        "all of them"
    )
