"""The shares of a process's file descriptors for log files, clients and other brokers. Pure.

Segment files are opened as needed, and closed when others need the descriptor (`storage/open_files.py`), so few
descriptors suffice, slowly. A connection that gets no descriptor is refused by the system without an answer. So
connections get what the settings promise as long as files have half of all descriptors; below that clients get fewer,
and are refused with a 503. Other brokers and the process itself keep their part in any case.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OWN: Final = 112
"""File descriptors of the process itself: standard streams, event loop, listeners with their duplicates, connections
being accepted, libraries."""
FILES_MAX: Final = 16_384
"""Maximum file descriptors for log files. More are of no use: opening a file takes some 30 us, and at most so many are
written to within a second."""
CLIENTS_MIN: Final = 16


class Descriptors(NamedTuple):
    """The maximum number of open files, and of client connections."""

    files: int
    clients: int


def share(limit: int, clients: int, peers: int) -> Descriptors:
    """Divides `limit` descriptors: `clients` and `peers` are the connections that the settings allow."""
    spare = max(limit - OWN, 2 * CLIENTS_MIN)
    files = min(max(spare - clients - peers, spare // 2), FILES_MAX)
    left = spare - files - min(peers, spare // 8)
    return Descriptors(files, min(clients, max(left, CLIENTS_MIN)))
