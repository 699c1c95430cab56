"""How many of the possible damages the slow sweeps of one disk try: a fifth, or all by `make sim-damage`."""

from __future__ import annotations

import os

SAMPLED_IF_SLOW = int(os.environ.get("TIDELOG_SAMPLED", "5"))
"""Every so many cases."""
