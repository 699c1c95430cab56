"""A request that waits too long, or comes while the loop runs late, is refused; other classes are served."""

from __future__ import annotations

import pytest

from tidelog.broker.face.brake import MEASUREMENTS
from tidelog.broker.face.shedding import RequestClass, Shedding
from tidelog.model.errors import Overloaded


def _wait_long(shedding: Shedding, kind: RequestClass, from_s: float, to_s: float) -> None:
    now_s = from_s
    while now_s < to_s:
        shedding.refuse_late(kind, 0.5, now_s)
        now_s += 0.05


def test_a_class_that_stands_is_refused_and_the_others_are_served() -> None:
    shedding = Shedding(0.1, 1.0, 0.2)
    _wait_long(shedding, RequestClass.READ, 10.0, 11.0)
    with pytest.raises(Overloaded, match=r"read requests wait for longer than 100 ms \(request.queue.wait.ms.max\)"):
        shedding.refuse_late(RequestClass.READ, 0.5, 11.0)
    for kind in (RequestClass.PRODUCE, RequestClass.LONG_POLL, RequestClass.ADMIN):
        shedding.refuse_late(kind, 0.5, 11.0)
    shedding.refuse_late(RequestClass.READ, 0.05, 11.0)
    assert {key for key, count in shedding.shed.items() if count} == {(RequestClass.READ, "wait")}


def test_a_late_loop_takes_long_polls_first_and_produces_last() -> None:
    shedding = Shedding(0.1, 1.0, 0.2)
    refused = []
    for lag_s in (0.1, 0.2, 0.4, 0.8):
        for _ in range(MEASUREMENTS):
            shedding.brake.measured(lag_s)
        refused.append([kind for kind in RequestClass if _is_refused(shedding, kind)])
    long_poll, read, admin = RequestClass.LONG_POLL, RequestClass.READ, RequestClass.ADMIN
    assert refused == [[], [long_poll], [read, long_poll, admin], list(RequestClass)]
    assert shedding.shed[long_poll, "lag"] == 3


def _is_refused(shedding: Shedding, kind: RequestClass) -> bool:
    try:
        shedding.refuse_late(kind, 0.0, 1.0)
    except Overloaded as error:
        return "loop.lag.ms.max" in error.message
    return False
