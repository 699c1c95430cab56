"""The audit log: which denials have a line, what a line holds, and that nobody waits long for its disk."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.face import audit as module
from tidelog.broker.face.audit import DENIALS_PER_S, FIELD_CHARS_MAX, Audit, AuditEvent, Denials, line_of
from tidelog.sim.kit.environment import SimEntropy

HOSTILE = 'a\r\n{"event":"changed"}\x1b[31m\x00\x7f\x9b\u202e\u2028\udc80"\\'


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 1_795_797_217_241


T = TypeVar("T")


class Sink:
    """A disk that can be full, or stand still."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.is_full = False
        self.moves = asyncio.Event()
        self.moves.set()

    def write(self, lines: Sequence[bytes]) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines += [json.loads(line) for line in lines]

    async def run(self, call: Callable[[], T]) -> T:
        await self.moves.wait()
        return call()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]


def made(sink: Sink, clock: Clock | None = None) -> Audit:
    return Audit(sink, sink, clock or Clock(), SimEntropy(random.Random(1)), 7)


def denial(reason: str = "no right", address: str = "", principal: str = "") -> AuditEvent:
    return AuditEvent(event="denied", allowed=False, status=403, reason=reason, address=address, principal=principal)


def change(name: str = "t") -> AuditEvent:
    return AuditEvent(event="changed", allowed=True, status=201, resource_type="Topic", resource_name=name)


async def test_a_line_tells_who_what_and_when() -> None:
    sink = Sink()
    audit = made(sink)
    audit.start()
    await audit.changed(
        AuditEvent(
            event="changed",
            principal="User:alice",
            address="10.0.0.9",
            listener="http",
            request_id="r1",
            method="POST",
            route="/topics",
            operation="Create",
            resource_type="Cluster",
            resource_name="kafka-cluster",
            subject="t",
            allowed=True,
            status=201,
        )
    )
    await audit.stop()
    assert sink.lines == [
        {
            "time": "2026-11-27T16:33:37.241Z",
            "node_id": 7,
            "event": "changed",
            "principal": "User:alice",
            "client_id": "",
            "address": "10.0.0.9",
            "listener": "http",
            "request_id": "r1",
            "method": "POST",
            "route": "/topics",
            "operation": "Create",
            "resource_type": "Cluster",
            "resource_name": "kafka-cluster",
            "subject": "t",
            "allowed": True,
            "status": 201,
            "error_code": 0,
            "reason": "",
            "more": 0,
        }
    ]


@given(st.sampled_from(AuditEvent.__struct_fields__), st.one_of(st.just(HOSTILE), st.text()))
def test_no_field_breaks_out_of_its_line(name: str, text: str) -> None:
    """F116."""
    fields = {"event": "denied", "allowed": False, "status": 1, "error_code": 1, name: text}
    line = line_of(7, 0, 0, AuditEvent(**fields))  # type: ignore[arg-type]  # any text anywhere
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F for byte in line[:-1])
    assert json.loads(line)[name] == text[:FIELD_CHARS_MAX]


@pytest.mark.parametrize("offered", [None, "", "a b", "a\r\nb", "x" * 129, "é", HOSTILE])
async def test_an_unfit_request_id_is_replaced(offered: str | None) -> None:
    drawn = made(Sink()).request_id(offered)
    assert drawn != offered and len(drawn) == 16
    assert made(Sink()).request_id("4bf92f35-77b3:1.a_b") == "4bf92f35-77b3:1.a_b"


async def test_denials_alike_have_a_line_a_second_and_the_rest_is_counted() -> None:
    sink, clock = Sink(), Clock()
    audit = made(sink, clock)
    audit.start()
    for _ in range(50):
        audit.denied(denial(address="10.0.0.9"))
    audit.denied(denial(address="10.0.0.8"))
    audit.denied(denial("quota", address="10.0.0.9"))
    clock.now_s += 1.0
    audit.denied(denial(address="10.0.0.9"))
    await audit.stop()
    assert [(line["address"], line["reason"], line["more"]) for line in sink.lines] == [
        ("10.0.0.9", "no right", 0),
        ("10.0.0.8", "no right", 0),
        ("10.0.0.9", "quota", 0),
        ("10.0.0.9", "no right", 49),
    ]
    assert audit.counts == {"written": 4, "left out": 49, "dropped": 0, "lost": 0}


async def test_a_caller_that_has_logged_in_is_one_wherever_it_comes_from() -> None:
    audit = made(Sink())
    for number in range(20):
        audit.denied(denial(principal="User:mallory", address=f"10.0.0.{number}"))
    assert audit.counts["left out"] == 19


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 300)), min_size=1, max_size=300))
def test_lines_of_denials_are_bounded_and_none_is_forgotten(asked: list[tuple[float, int]]) -> None:
    denials = Denials()
    now_s, told, left_out = 100.0, 0, 0
    for gap_s, caller in asked:
        now_s += gap_s
        more = denials.admit(str(caller), "no right", now_s)
        if more is None:
            left_out += 1
        else:
            told += 1
            left_out -= more
    assert told <= DENIALS_PER_S * (now_s - 100.0 + 1) + 1
    for caller in range(301):  # the next line of each tells of the rest
        now_s += 1.0
        left_out -= denials.admit(str(caller), "no right", now_s) or 0
    assert left_out == 0


def test_what_is_remembered_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENIERS_MAX", 5)
    denials = Denials()
    told = [denials.admit(f"a{number % 20}", "r", 100.0) for number in range(400)]
    assert told[0] == 0 and None in told
    told.append(denials.admit("new", "r", 200.0))
    left = sum(left_out for _, left_out in denials._lines.values()) + denials._forgotten
    assert told.count(None) == sum(more for more in told if more) + left
    assert len(denials._lines) == 5


async def test_a_full_disk_loses_lines_and_holds_nobody_up() -> None:
    sink = Sink()
    sink.is_full = True
    audit = made(sink)
    audit.start()
    for _ in range(10):
        await audit.changed(change())
    await asyncio.sleep(0.01)
    sink.is_full = False
    await audit.changed(change("last"))
    await audit.stop()
    assert [line["resource_name"] for line in sink.lines] == ["last"]
    assert audit.counts["lost"] == 10


async def test_behind_a_slow_disk_denials_are_dropped_and_changes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 3)
    monkeypatch.setattr(module, "WAIT_S_MAX", 60.0)
    sink = Sink()
    sink.moves.clear()
    audit = made(sink)
    audit.start()
    for _ in range(3):
        await audit.changed(change())
    audit.denied(denial(address="10.0.0.9"))
    assert audit.counts["dropped"] == 1
    waiting = asyncio.create_task(audit.changed(change("waits")))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    sink.moves.set()
    await waiting
    await audit.stop()
    assert [line["resource_name"] for line in sink.lines] == ["t", "t", "t", "waits"]


async def test_a_change_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 1)
    monkeypatch.setattr(module, "WAIT_S_MAX", 0.01)
    monkeypatch.setattr(module, "CLOSE_S_MAX", 0.01)
    sink = Sink()
    sink.moves.clear()
    audit = made(sink)
    audit.start()
    await audit.changed(change())
    await audit.changed(change())
    assert audit.counts["dropped"] == 1
    await audit.stop()
    assert audit.counts["lost"] == 1
