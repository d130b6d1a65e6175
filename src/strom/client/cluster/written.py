"""How far rows are written: what a writer learns from acknowledgements, and a reader may ask to see at least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strom.model.bucket import BucketId


class WrittenUpTo(NamedTuple):
    """Everything before ``offset`` of a bucket is written; the last of it in ``epoch``."""

    offset: int
    epoch: int


WrittenTo = Mapping[BucketId, WrittenUpTo]
"""What was acknowledged: plain data, good for ``at_least=`` in any process."""
