"""The command line as a person runs it: a process with words, standard input, output and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str
    out_bytes: bytes


def strom(*words: str, server: str | None = None, stdin: bytes = b"", **environment: str) -> Ran:
    """Run ``strom WORDS…`` against a server address."""
    place = {"STROM_SERVER": server} if server else {}
    done = subprocess.run(
        [sys.executable, "-m", "strom.cli.main", *words],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | place | environment,
    )
    return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(), done.stdout)
