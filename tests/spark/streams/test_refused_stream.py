"""A stream that cannot be says why, whichever of its methods Spark calls first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.datasource import InputPartition

from strom.errors import InvalidRequest
from strom.spark.source.stream_reader import RefusedReader


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.read(InputPartition(0)),
    ],
    ids=["initialOffset", "latestOffset", "latestOffset after a start", "partitions", "read"],
)
def test_whatever_is_asked_of_it_is_answered_with_the_error(call: Callable[[RefusedReader], object]) -> None:
    with pytest.raises(Exception, match="no such stream"):
        call(RefusedReader(InvalidRequest("no such stream"), None))
