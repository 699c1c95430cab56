"""Signals to a process that serves: SIGTERM and SIGINT stop it in order, others must not end it by chance.

SIGUSR1 has it write the stacks of its tasks and threads to its log. SIGHUP comes when the terminal closes and from
programs that rotate logs; the log is standard error, so there is nothing to open anew but certificates and keys, if
there are any. SIGUSR2 switches the log to `debug` and back. The default of all three would end the process at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from tidelog.adapters.stacks import stacks

logger = structlog.get_logger("tidelog")


def stop_on_signals(switch: Callable[[], None], *reloads: Callable[[], None]) -> asyncio.Event:
    """Returns what is set when the process is to stop. From now on SIGHUP, SIGUSR1 and SIGUSR2 do not end it. `switch`
    is called for SIGUSR2, and changes the level that is logged; `reloads` are, for SIGHUP."""

    def reload() -> None:
        for handler in reloads:
            handler()
        if not reloads:
            logger.warning("signal ignored", signal="SIGHUP")

    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # By the loop, not by `signal.signal`: the handler runs between two callbacks, where state is whole.
        loop.add_signal_handler(number, requested.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR1, lambda: logger.warning("stacks", text=stacks()))
    loop.add_signal_handler(signal.SIGUSR2, switch)
    return requested
