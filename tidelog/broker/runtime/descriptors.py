"""The share of a process's file descriptors that files, clients and other brokers get. Pure.

Segment files are opened by need, and closed when others need the place (`storage/open_files.py`), so few do, slowly. A
connection that gets no descriptor is refused by the system without a word. So connections get what the settings promise
as long as files have half of what there is; below that clients get fewer, and are told so with a 503. Other brokers and
what the process itself needs keep their part in any case.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OWN: Final = 112
"""The descriptors of the process itself: standard streams, event loop, listeners with their duplicates, connections on
their way in, libraries.
"""
FILES_MAX: Final = 16_384
"""More are of no use: opening a file costs some 30 us, and so many are written to within a second at most."""
CLIENTS_MIN: Final = 16


class Descriptors(NamedTuple):
    """How many there are for what."""

    files: int
    clients: int


def share(limit: int, clients: int, peers: int) -> Descriptors:
    """Shares out `limit` descriptors; settings allow as many connections of `clients`, and of `peers` and others."""
    spare = max(limit - OWN, 2 * CLIENTS_MIN)
    files = min(max(spare - clients - peers, spare // 2), FILES_MAX)
    left = spare - files - min(peers, spare // 8)
    return Descriptors(files, min(clients, max(left, CLIENTS_MIN)))
