"""Doors of a client that is nobody, or has credentials, to brokers that it reaches in plain text."""

from __future__ import annotations

from tidelog.adapters.broker_frames import dial, in_thread
from tidelog.adapters.system import SystemEntropy
from tidelog.transport.credentials import Credentials
from tidelog.transport.frames.doors import Dial, Doors
from tidelog.transport.frames.introduction import Introduction


def doors_of(credentials: Credentials | None = None, *, dial: Dial = dial) -> Doors:
    """Returns doors that know of no broker yet."""
    introduction = Introduction("", credentials, is_encrypted=False, entropy=SystemEntropy(), in_thread=in_thread)
    return Doors(dial, context=None, introduction=introduction)
