"""`tidelog cluster recover` tells of each directory what it holds."""

from __future__ import annotations

from pathlib import Path

from tidelog.broker.metadata.remains import Remains
from tidelog.cli.cluster_recover import _end
from tidelog.model.cluster import Voter
from tidelog.replication.paxos.state import Prefix
from tidelog.replication.paxos.voters import VoterSet
from tidelog.storage.disk_files import DiskFiles


def test_a_directory_without_a_metadata_log_is_said_to_have_none(tmp_path: Path) -> None:
    found = Remains("d", DiskFiles(str(tmp_path)), None)
    assert _end(found) == "no metadata log can be read there"
    found.snapshot = (7, "root", b"", VoterSet((Voter(1, 1, "disk", "h", 1),), 2))
    assert _end(found) == "no metadata log can be read there; a snapshot goes up to position 7"
    found.floors.append(Prefix())
    assert _end(found) == "its metadata log ends at position 7"
