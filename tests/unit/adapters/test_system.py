"""A thread's busy time."""

from __future__ import annotations

import threading
import time

from tidelog.adapters.system import thread_busy_s


def test_a_thread_is_busy_while_it_runs_and_not_while_it_waits() -> None:
    """A thread that ran for so long was busy for as long at least; one that waits is busy for less than it waits,
    however slow the machine is: else it would have had no time to wait."""
    before_s, ran_s = thread_busy_s(), time.thread_time()
    while time.thread_time() - ran_s < 0.1:
        pass
    assert thread_busy_s() - before_s >= 0.05  # Linux brings it up to date at each tick
    shares: list[float] = []

    def waits() -> None:
        started_s, busy_s = time.monotonic(), thread_busy_s()
        threading.Event().wait(0.2)
        shares.append((thread_busy_s() - busy_s) / (time.monotonic() - started_s))

    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()
    assert shares[0] < 1
