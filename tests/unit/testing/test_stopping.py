"""How long a broker may take to stop, and how long those that started it wait for that."""

from __future__ import annotations

from tidelog.broker import assembly
from tidelog.broker.membership.registration import SHUTDOWN_S_MAX
from tidelog.cli import supervisor
from tidelog.testing import broker_process


def test_the_deadline_of_a_stop_holds_the_deadlines_of_its_parts() -> None:
    assert assembly.STOP_S_MAX >= assembly.STOP_GRACE_S + SHUTDOWN_S_MAX + assembly.CLOSE_S_MAX


def test_a_broker_gives_up_and_says_so_before_it_is_killed() -> None:
    assert supervisor.STOP_S > assembly.STOP_S_MAX
    assert broker_process.STOP_TIMEOUT_S > assembly.STOP_S_MAX
