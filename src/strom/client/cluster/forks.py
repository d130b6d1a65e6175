"""A counter of forks, to tell a child from its parent without a system call."""

from __future__ import annotations

import os

count = 0
"""Forks between the first import of this module and this process."""


def _forked() -> None:
    global count
    count += 1


os.register_at_fork(after_in_child=_forked)
