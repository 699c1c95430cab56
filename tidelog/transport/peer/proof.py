"""Proofs by which two brokers show each other that they know their cluster's secret, without sending it.

    caller                           answerer
    challenge: node, nonce    -->
                              <--    challenge: node, nonce
    hello, and its proof      -->
                              <--    hello, and its proof

A proof is an HMAC, keyed with the secret, over the connection's *channel*, all challenges and hellos so far, the hello
that it follows, and the role of its sender. The channel consists of the digests of both TLS certificates (as RFC 5929
binds a channel to the server's). A man in the middle has another certificate towards at least one end, so a proof is
valid on its own connection only. Without TLS the channel is empty. Nonces are drawn per connection, which makes
replayed and reflected proofs invalid. The caller proves first: a mere dialler learns the answerer's node id, and
nothing from which the secret could be guessed. The caller sends its proof only to the node that it means to reach.

Later hellos and messages need no proof: whoever can inject frames into a connection can also read it, and only
encryption (TLS) helps against that. With both, neither a stolen CA key nor a stolen secret is sufficient. `Proofs`
belongs to one end of one connection, and knows nothing of frames.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from tidelog.model.ports import Entropy

DOMAIN: Final = b"tidelog peer proof 1"
"""Domain separation: the prefix of the bytes under the HMAC, which no other use of the secret has."""
NONCE_BYTES: Final = 32


Channel = tuple[bytes, bytes]
"""The digests of the caller's certificate and of the answerer's."""
NO_CHANNEL: Final[Channel] = (b"", b"")
"""The channel of a connection without TLS."""


class Role(enum.Enum):
    """The end of a connection that sends a proof: caller or answerer."""

    CALLER = b"caller"
    ANSWERER = b"answerer"


class Challenge(msgspec.Struct, frozen=True):
    """A message that requests a proof for this connection."""

    node_id: int
    """The id of the node that sends the challenge."""
    nonce: Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]

    @classmethod
    def draw(cls, node_id: int, entropy: Entropy) -> Challenge:
        """Returns a challenge with a fresh nonce."""
        return cls(node_id, bytes.fromhex(entropy.token_hex(NONCE_BYTES)))


class ClusterSecret:
    """A key that all brokers of a cluster share. It is in no log and no `repr`."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "ClusterSecret(...)"

    def proof(self, role: Role, said: Sequence[bytes], channel: Channel = NO_CHANNEL) -> bytes:
        """Returns the proof of one end: an HMAC over `said`, the encoded challenges and hellos that both ends have sent
        so far, the role, and the channel."""
        # Each part comes with its length, so that no two conversations are the same bytes; and with the role, so that a
        # proof that is sent back to who gave it proves nothing.
        parts = (DOMAIN, role.value, *channel, *said)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")


class Proofs:
    """The challenges and hellos of one connection, at one of its ends. Their order is fixed: challenge of the caller,
    challenge of the answerer, hello of the caller, hello of the answerer."""

    def __init__(self, secret: ClusterSecret, role: Role, certificates: Channel = NO_CHANNEL) -> None:
        """`certificates` are the digests of this end's certificate and of the other end's."""
        self._secret = secret
        self._role = role
        self._channel = certificates if role is Role.CALLER else certificates[::-1]
        self._said: list[bytes] = []
        """The encoded challenges and hellos of both ends, in their order."""

    @property
    def may_be_challenged(self) -> bool:
        """True if the other end's challenge may arrive now: at the answerer first, at the caller after its own."""
        return len(self._said) == (self._role is Role.CALLER)

    @property
    def may_be_proved(self) -> bool:
        """True if both challenges were sent and the proof of the other end is next."""
        return len(self._said) == 2 + (self._role is Role.CALLER)

    def said(self, challenge: bytes) -> None:
        """Stores a challenge of either end."""
        self._said.append(challenge)

    def prove(self, hello: bytes) -> bytes:
        """Returns the proof that accompanies this end's first hello."""
        self._said.append(hello)
        return self._secret.proof(self._role, self._said, self._channel)

    def is_proved(self, hello: bytes, proof: bytes) -> bool:
        """Returns True if the proof of the other end's first hello is valid."""
        role = Role.ANSWERER if self._role is Role.CALLER else Role.CALLER
        self._said.append(hello)
        return hmac.compare_digest(self._secret.proof(role, self._said, self._channel), proof)


def secret_missing(node_id: int, role: Role, *, is_mine: bool) -> str:
    """Returns the error text for a connection of which only one end has a secret. It contains nothing that an unknown
    peer chose."""
    has = "no cluster secret" if is_mine else "a cluster secret"
    return _same_file(f"node {node_id} has {has}, and {_far_end(role)} has {'one' if is_mine else 'none'}")


def secrets_differ(node_id: int, role: Role, *, has_channel: bool) -> str:
    """Returns the error text for an invalid proof."""
    between = ", or somebody stands between them, with certificates of the same CA" if has_channel else ""
    return _same_file(f"node {node_id} has another cluster secret than {_far_end(role)}{between}")


def _far_end(role: Role) -> str:
    return "the broker that it calls" if role is Role.CALLER else "the broker that calls it"


def _same_file(problem: str) -> str:
    return (
        f"{problem}; cluster.secret.file (of a log by itself: --secret-file) must name a file with the same content on "
        "all of them"
    )
