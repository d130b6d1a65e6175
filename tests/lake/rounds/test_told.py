"""A round in a few words."""

from __future__ import annotations

from typing import Any, cast

import pytest

from strom.lake.rounds.round import RoundResult
from strom.lake.upkeep.maintenance import Upkept
from strom.spark.tiering.progress import told

TOOK = {"writing": 1.0, "committing": 0.25, "round": 1.5}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"rows": 1, "files": 1}, "1 row, 1 file, 2.5 MB, 1.5 s (writing 1.0, committing 0.2)"),
        (
            {"rows": 7, "deletes": 2, "files": 3, "more": True},
            "7 rows, 2 deletes, 3 files, 2.5 MB, 1.5 s (writing 1.0, committing 0.2), more to come",
        ),
        (
            {"upkeep": Upkept(files_before=4, files_after=1, rows_removed=1, files_removed=5)},
            "0 rows, 0 files, 2.5 MB, 1.5 s (writing 1.0, committing 0.2); "
            "4 files became 1, 1 dead row dropped, 5 old files removed",
        ),
    ],
    ids=["plain", "with deletes and more", "with upkeep"],
)
def test_a_round_is_told_in_a_line(facts: dict[str, Any], words: str) -> None:
    result = RoundResult(cast(Any, None), size_bytes=2_500_000, took=TOOK, **facts)
    assert told(result) == words
