"""Answers are read into memory that was used before, as on a server that has run for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strom.log.reading import answer_memory


@pytest.fixture(scope="package", autouse=True)
def memory_is_not_zero() -> Iterator[None]:
    """A byte that nobody writes is not a zero by chance."""

    class Used:
        @staticmethod
        def allocate_buffer(size: int) -> pa.Buffer:
            return pa.py_buffer(bytearray(b"\xa5") * size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_memory, "pa", Used)
        yield
