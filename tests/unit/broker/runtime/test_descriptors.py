"""How descriptors are shared out."""

from __future__ import annotations

import pytest

from tidelog.broker.runtime.descriptors import CLIENTS_MIN, FILES_MAX, OWN, share


def test_with_plenty_everybody_gets_what_they_may_use() -> None:
    assert share(1 << 20, clients=2_000, peers=512) == (FILES_MAX, 2_000)


def test_below_that_files_get_what_connections_leave() -> None:
    assert share(10_000, clients=2_000, peers=512) == (10_000 - OWN - 2_512, 2_000)


@pytest.mark.parametrize("limit", [256, 1_024, 4_096])
def test_with_few_the_parts_never_add_up_to_more_than_there_are(limit: int) -> None:
    files, clients = share(limit, clients=2_000, peers=512)
    assert files >= (limit - OWN) // 2
    assert CLIENTS_MIN <= clients < 2_000
    assert OWN + files + clients + min(512, (limit - OWN) // 8) <= limit


def test_a_limit_that_is_absurd_still_gives_something_to_each() -> None:
    files, clients = share(10, clients=2_000, peers=512)
    assert files >= CLIENTS_MIN and clients >= CLIENTS_MIN
