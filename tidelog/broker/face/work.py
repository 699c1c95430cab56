"""Work of listeners that takes longer than the event loop may be blocked, re-exported for listeners."""

from __future__ import annotations

from tidelog.broker.runtime.heavy_work import HeavyWork

__all__ = ["HeavyWork"]
