"""Signals to a server process: SIGTERM and SIGINT stop it in order, and others do not end it by accident.

SIGUSR1 writes the stacks of all tasks and threads to the log. SIGHUP is sent when the terminal closes and by programs
that rotate logs; the log is standard error, so only certificates and keys, if any, are read again. SIGUSR2 switches the
log to `debug` and back. The default of all three would end the process at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from tidelog.adapters.stacks import stacks

logger = structlog.get_logger("tidelog")


def stop_on_signals(switch: Callable[[], None], *reloads: Callable[[], None]) -> asyncio.Event:
    """Installs the signal handlers, and returns an event that SIGTERM or SIGINT sets. SIGUSR2 calls `switch`, to change
    the log level; SIGHUP calls the `reloads`; SIGUSR1 logs all stacks."""

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
