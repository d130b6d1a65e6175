"""What a lake file says of a floating-point column that came in several pieces is what one piece would give."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from strom.lake.files.statistics import FloatStats

NAN = float("nan")


def seen(*pieces: list[float | None], kind: pa.DataType) -> FloatStats:
    stats = FloatStats()
    for piece in pieces:
        stats.see(pa.chunked_array([pa.array(piece, kind)]))
    return stats


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(
    "pieces",
    [
        [[1.0, NAN], [2.0]],
        [[1.0], [NAN, NAN], [0.5, None]],
        [[3.0, None], [-1.0], [None]],
        [[-2.0], [5.0], [0.0]],
        [[None], [None]],
        [[], [7.0], []],
        [[NAN], [NAN]],
        [[math.inf], [-math.inf]],
        [[0.0], [-0.0]],
    ],
)
def test_pieces_give_what_the_whole_gives(pieces: list[list[float | None]], kind: pa.DataType) -> None:
    whole: list[float | None] = [value for piece in pieces for value in piece]
    numbers = [value for value in whole if value is not None]
    found, alone = seen(*pieces, kind=kind), seen(whole, kind=kind)
    assert (found.nulls, found.nans) == (alone.nulls, alone.nans)
    assert found.nulls == whole.count(None)
    assert found.nans == sum(map(math.isnan, numbers))
    assert found.bounds(kind) == alone.bounds(kind)
    if found.nans or not numbers:
        assert found.bounds(kind) == (None, None), "a NaN has no place between bounds"
    else:
        assert (found.low, found.high) == (min(numbers), max(numbers))
