"""What was freed is used again, not taken anew from the system page by page."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from strom.runtime.memory import keep_freed_blocks

if "taught" in sys.argv:
    keep_freed_blocks()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [bytearray(1_000_000) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def faults(*words: str) -> int:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, timeout=60
    )
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other habits")
def test_an_allocator_that_was_taught_keeps_freed_blocks() -> None:
    assert faults("taught") * 10 < faults()
