"""What kernels are promised: read-only arrays, addresses of any alignment, and a cache that notices every change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from strom.kv.compile import int64, kernel, load_f64, load_i32, load_u8, ro, rw, store_i64, void


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
from strom.kv.compile import kernel
@kernel()
def part(x):
    return x + {amount}
"""
_WHOLE = """
import sys
from numba import int64
from part import part
from strom.kv.compile import kernel
@kernel(int64(int64))
def whole(x):
    return part(x)
print(whole(1), sum(whole.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_cached_kernel_is_compiled_again_when_a_kernel_it_calls_has_changed(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(_WHOLE)
    seen = []
    for amount in (1, 1, 2):
        (tmp_path / "part.py").write_text(_PART.format(amount=amount))
        ran = subprocess.run(
            [sys.executable, "-B", "whole.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        seen.append(ran.stdout.split())
    assert seen == [["2", "0"], ["2", "1"], ["3", "0"]]
