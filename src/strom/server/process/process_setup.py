"""Settings that a process applies to itself before it serves."""

from __future__ import annotations

import gc
import resource
import sys

from strom.errors import InvalidSetting

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while the loop wants it: small fetches feel the default of 5 ms."""
OPEN_FILES_WANTED = 65_536


def prepare_process() -> None:
    """Refuse to run without asserts, give the loop its turn quickly, allow many open files."""
    if not __debug__:
        raise InvalidSetting(
            "a server does not run under python -O: its asserts guard your data; start it without -O"
        )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_open_files()


def settle() -> None:
    """Once everything is imported and built: keep the garbage collector from walking through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def raise_open_files() -> int:
    """Raise the limit of open files as far as allowed; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            return soft  # macOS caps it lower than it says; keep the old limit
        return wanted
    return soft
