"""How many files and connections this process and its children may hold open."""

from __future__ import annotations

import resource


def raise_open_files_limit(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or as near as the hard limit lets it; never lower it.

    Returns how many of the `wanted` may be open now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return reachable
