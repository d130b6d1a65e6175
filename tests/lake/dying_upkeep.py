"""Maintenance of a lake table in a process that kills itself at a chosen point. Run by ``test_upkeep_kills``.

python -m lake.dying_upkeep '{"warehouse": "…", "die": "written"}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lake.lake_places import Lake
from strom.lake.files.file_writer import FileWriter
from strom.lake.files.storage import Storage
from strom.lake.upkeep import compaction, expiry, maintenance
from strom.lake.upkeep.maintenance import Maintenance
from strom.model.lake.lake_upkeep import LakeUpkeep

UPKEEP = LakeUpkeep(files=3, snapshots=2, snapshots_ms=0, removal_ms=0)
POINTS = ("writing", "written", "committed", "listed", "expired", "removing")


def die() -> None:
    """At once."""
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, count: int = 0) -> None:
    """Die when something is called, after so many calls."""
    really: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(count))

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            die()
        return really(*arguments, **named)

    setattr(owner, name, called)


def die_at(point: str) -> None:
    """Put the death where it is wanted."""
    match point:
        case "writing":
            before(FileWriter, "finish")
        case "written":
            before(compaction, "commit_change")
        case "committed":
            before(maintenance, "expire_snapshots")
        case "listed":
            before(expiry, "_commit")
        case "expired":
            before(maintenance, "remove_expired")
        case "removing":
            before(Storage, "delete", 4)


def main(warehouse: str, point: str) -> None:
    """Maintain, and die on the way."""
    lake = Lake(Path(warehouse))
    die_at(point)
    Maintenance().after_round(lake.table, UPKEEP, lambda: ())


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    main(told["warehouse"], told["die"])
