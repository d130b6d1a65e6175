"""How far rows are written: a writer learns it from acknowledgements, a reader can demand to see at least that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strom.model.bucket import BucketId


class WrittenUpTo(NamedTuple):
    """Everything before ``offset`` of a bucket is written; the last of it in ``epoch``."""

    offset: int
    epoch: int


WrittenTo = Mapping[BucketId, WrittenUpTo]
"""Acknowledged writes as plain data, usable as ``at_least=`` in any process."""
