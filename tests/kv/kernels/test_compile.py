"""What kernels can rely on: read-only arrays, addresses of any alignment, and a cache that notices every change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from strom.kv.kernels.compile import int64, kernel, load_f64, load_i32, load_u8, ro, rw, store_i64, void
from strom.kv.kernels.kernel_groups import kernels_of
from strom.kv.kernels.kernel_needs import GROUPS


@kernel(int64(ro(int64)))
def _total(values: np.ndarray) -> int:
    total = 0
    for i in range(len(values)):
        total += values[i]
    return total


@kernel(void(int64, rw(int64), int64))
def _copy_by_address(address: int, out: np.ndarray, to: int) -> None:
    out[0] = load_i32(address)
    out[1] = load_u8(address)
    out[2] = int64(load_f64(address + 4))
    store_i64(to, 0x0102030405060708)


def test_read_only_and_writable_arrays_are_accepted() -> None:
    values = np.arange(5)
    assert _total(values) == 10
    values.flags.writeable = False
    assert _total(values) == 10


def test_other_types_are_refused_instead_of_compiled_anew() -> None:
    with pytest.raises(TypeError):
        _total(np.arange(5, dtype=np.float64))


def test_addresses_need_no_alignment() -> None:
    raw = np.frombuffer(b"?" + (-5).to_bytes(4, "little", signed=True) + np.float64(9).tobytes(), np.uint8)
    out, written = np.zeros(3, np.int64), np.zeros(9, np.uint8)
    _copy_by_address(raw.ctypes.data + 1, out, written.ctypes.data + 1)
    assert out.tolist() == [-5, 251, 9]
    assert written.tolist() == [0, 8, 7, 6, 5, 4, 3, 2, 1]


_PART = """
from strom.kv.kernels.compile import kernel
@kernel()
def part(x):
    return x + {amount}
"""
_WHOLE = """{above}
import sys
import places
from numba import int64
from part import part
from strom.kv.kernels.compile import kernel
@kernel(int64(int64))
def whole(x):
    return part(x) * places.FACTOR
@kernel(int64(int64))
def other(x):
    return x - 1
print(whole(1), *(name for name, one in (("whole", whole), ("other", other)) if other(1) == 0 and one.strom.compiled))
"""


class Sources:
    """A folder of kernels, run by a process of its own each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.write(amount=1, factor=1)

    def write(self, *, amount: int, factor: int, above: str = "") -> None:
        (self._folder / "part.py").write_text(_PART.format(amount=amount))
        (self._folder / "places.py").write_text(f"FACTOR = {factor}")
        (self._folder / "whole.py").write_text(_WHOLE.format(above=above))

    def run(self, **environment: str) -> list[str]:
        """What ``whole(1)`` gave, then the names of the kernels that were compiled for it."""
        command = [sys.executable, "-B", "whole.py"]
        ran = subprocess.run(
            command,
            cwd=self._folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.split()


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


def test_a_kernel_is_compiled_again_when_what_it_is_made_of_has_changed_and_no_other_is(
    sources: Sources,
) -> None:
    assert sources.run() == ["2", "whole", "other"]
    assert sources.run() == ["2"]
    sources.write(amount=2, factor=1)
    assert sources.run() == ["3", "whole"], "a kernel that it calls has changed, in another file"
    sources.write(amount=2, factor=5)
    assert sources.run() == ["15", "whole"], "a number that it names has changed, in another file"
    sources.write(amount=1, factor=1, above="# an upgrade moved it\n\n")
    assert sources.run() == ["2"], "it was compiled before, wherever it stood"


def test_code_that_was_cut_off_is_compiled_again(sources: Sources, tmp_path: Path) -> None:
    sources.run()
    for kept in (tmp_path / "__pycache__").glob("*.kernel"):
        kept.write_bytes(kept.read_bytes()[:100])
    assert sources.run() == ["2", "whole", "other"]
    assert sources.run() == ["2"]


def test_every_kernel_of_the_package_has_a_digest_and_a_name_of_its_own() -> None:
    kernels = kernels_of(GROUPS)
    assert len({one.stamp() for one in kernels}) == len(kernels) == len({one.name for one in kernels})
