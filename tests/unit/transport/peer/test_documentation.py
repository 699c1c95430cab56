"""docs/peer-protocol.md gives the bytes, kinds and bounds that the code has."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from tests.unit.transport.peer.brokers import Echo
from tidelog.adapters.frame_protocol import UNSENT_BYTES_HIGH, TcpTimeouts
from tidelog.model.levels import LevelRange
from tidelog.transport.peer import ClusterSecret, Hello, PeerBounds
from tidelog.transport.peer.frames import PREFIX_BYTES, Kind, MessageCodec, pack, unpack
from tidelog.transport.peer.proof import Proofs, Role

PAGE = (Path(__file__).parents[4] / "docs" / "peer-protocol.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading, without its head."""
    lines = PAGE.partition(f"\n{heading}\n")[2].partition("\n|")[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_example_is_what_is_sent() -> None:
    (dump,) = re.findall(r"```\n((?:[0-9a-f]{2}[ \n])+)```", PAGE)
    hello = Hello(2, "9f3c", "tides", 41, levels=LevelRange(1, 2), cluster_level=2)
    codec = MessageCodec([Echo])
    frame = b"".join(map(bytes, pack(Kind.HELLO, codec.encode_hello(hello))))
    assert bytes.fromhex(dump) == len(frame).to_bytes(4) + frame
    assert codec.hello(unpack(memoryview(frame)).header) == hello


def test_a_proof_is_made_as_the_page_says() -> None:
    words = b"tidelog peer proof 1", b"caller"
    assert all(f"`{word.decode()}`" in PAGE.replace("\n", " ") for word in words)
    said = [b"a challenge", b"another", b"a hello"]
    for certificates in ((b"", b""), (b"the caller's", b"the answerer's")):
        parts = b"".join(len(part).to_bytes(4, "big") + part for part in (*words, *certificates, *said))
        proofs = Proofs(ClusterSecret(b"secret"), Role.CALLER, certificates)
        proofs.said(said[0])
        proofs.said(said[1])
        assert proofs.prove(said[2]) == hmac.new(b"secret", parts, hashlib.sha256).digest()


def test_the_layout_adds_up() -> None:
    position = 0
    for byte, type_, name, _ in table("## Frames"):
        if not type_:
            assert (position, name) in ((PREFIX_BYTES, "header"), (PREFIX_BYTES, "payload"))
        else:
            assert int(byte) == position, name
            position += {"u8": 1, "2 bytes": 2, "u32": 4, "u64": 8}[type_]


def test_all_kinds_are_there() -> None:
    rows = re.findall(r"^\| (\d) \| ([a-z]+) \| .* \| (?:both|the call\w+) \|$", PAGE, re.MULTILINE)
    assert rows == [(str(int(kind)), kind.name.lower()) for kind in Kind]


def test_the_bounds_are_the_defaults() -> None:
    bounds, timeouts = PeerBounds(), TcpTimeouts()
    mib = 1 << 20
    assert [row[1] for row in table("## Bounds")] == [
        f"{bounds.frame_bytes_max // mib} MiB",
        f"{bounds.hello_bytes_max >> 10} KiB",
        f"{bounds.requests_max}",
        f"{bounds.queued_bytes_max // mib} MiB",
        f"{bounds.queued_bytes_max // mib} MiB",
        f"{bounds.notify_bytes_max // mib} MiB",
        f"{bounds.connections_max}",
        f"{bounds.strangers_max}",
        f"{bounds.connect_s_max:.0f} s each",
        f"{timeouts.frame_s_max:.0f} s, and a second per MiB",
        f"{timeouts.unsent_s_max:.0f} s",
    ]
    assert bounds.connect_s_max == bounds.handshake_s_max
    assert timeouts.bytes_per_s_min == mib
    assert f"from {UNSENT_BYTES_HIGH // mib} MiB of answers on" in PAGE
    assert f"after {bounds.backoff_s_min * 1000:.0f} ms" in PAGE
