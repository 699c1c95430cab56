"""What signals mean to a process that serves: SIGTERM and SIGINT stop it in order, others must not end it by chance.

SIGHUP comes when the terminal closes and from programs that rotate logs, SIGUSR1 and SIGUSR2 from whoever takes them
for a question. Their default would end the process at once, so they are taken, and nothing is done but to say so in the
log.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import structlog

logger = structlog.get_logger("tidelog")


def stop_on_signals() -> asyncio.Event:
    """Returns what is set when the process is to stop. From now on SIGHUP, SIGUSR1 and SIGUSR2 do not end it."""
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, requested.set)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, partial(logger.warning, "signal ignored", signal=number.name))
    return requested
