"""The limit of open files of this process.

Login shells and service managers give a process a soft limit, 1,024 on most systems, for the sake of programs that use
`select`. A server raises it to the hard one, which it may, as Go's runtime and nginx do.
"""

from __future__ import annotations

import resource


def raise_open_files_limit() -> int:
    """Raises the soft limit of open files to the hard limit, if the system permits it. Returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS: the hard one may be more than the kernel allows
        return soft
    return hard
