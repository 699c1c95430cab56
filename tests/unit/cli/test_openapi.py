from __future__ import annotations

import json

from tests.unit.cli.conftest import Tidelog


def test_the_document_is_printed_in_lines_that_can_be_compared(tidelog: Tidelog) -> None:
    ran = tidelog("openapi")
    assert (ran.status, ran.err) == (0, "")
    assert "/topics/{topic}" in json.loads(ran.out)["paths"]
    assert len(ran.out.splitlines()) > 1000
