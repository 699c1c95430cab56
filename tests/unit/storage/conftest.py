"""Storage tests run on a real directory and on the simulated disk, through one fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.model.ports import Files
from tidelog.sim.disk import SimDisk
from tidelog.storage.disk_files import DiskFiles


@pytest.fixture(params=["disk", "sim"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: Files = DiskFiles(str(tmp_path / "data")) if request.param == "disk" else SimDisk(7)
    made.make_dirs("")
    return made
