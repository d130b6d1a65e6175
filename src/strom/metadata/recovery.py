"""What to do with a database and its second copy, found in any state. Pure: states in, a decision out.

A commit is written to the copy first (``second_copy.py``), so of two whole files the newer one is right, and a
whole copy may always replace a damaged database. Going back must never happen: an id would be
assigned again, and two tables would share one folder. So a copy that cannot be read to its end replaces nothing, and
the operator has to decide.

    database    copy               decision
    missing     missing            CREATE
    whole       whole, same        KEEP
    whole       whole, newer       ROLL_FORWARD   (a crash between the two writes, or SQLite lost its log)
    whole       older or missing   REWRITE_COPY
    whole       damaged, not past  REWRITE_COPY   (a torn last record: it was never acknowledged)
    whole       damaged, past it   REFUSE         (the database lost commits, and the copy may lack some)
    damaged     whole              RESTORE
    missing     whole              RESTORE
    damaged     missing, damaged   REFUSE
    missing     damaged            REFUSE
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from strom.errors import MetadataCorrupt


class Action(Enum):
    """What the store does before it is used."""

    CREATE = auto()
    KEEP = auto()
    REWRITE_COPY = auto()
    ROLL_FORWARD = auto()
    RESTORE = auto()
    REFUSE = auto()


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one of the two files. ``version``: of an intact file, or up to which a damaged one is readable."""

    found: bool
    version: int = 0
    damage: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every byte is what was written."""
        return self.found and self.damage is None

    def __str__(self) -> str:
        if not self.found:
            return "is missing"
        if self.damage is None:
            return f"is whole at version {self.version}"
        return f"is damaged ({self.damage})"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do, and the sentence for the log; ``loud`` if a plain crash does not explain it."""

    action: Action
    notice: str = ""
    loud: bool = False


def decide(database: Condition, copy: Condition) -> Remedy:
    """The table above."""
    if not database.found and not copy.found:
        return Remedy(Action.CREATE)
    if database.whole:
        return _with_a_whole_database(database, copy)
    if copy.whole:
        notice = f"it {database}; restored from the second copy, version {copy.version}"
        return Remedy(Action.RESTORE, notice, loud=True)
    return Remedy(Action.REFUSE, f"it {database}, and the second copy {copy}", loud=True)


def _with_a_whole_database(database: Condition, copy: Condition) -> Remedy:
    if copy.whole and copy.version == database.version:
        return Remedy(Action.KEEP)
    if copy.version <= database.version:
        notice = f"the second copy {copy}; written anew from version {database.version}"
        return Remedy(Action.REWRITE_COPY, notice, loud=not copy.whole)
    if not copy.whole:
        notice = f"it is at version {database.version}, and the second copy is past that but {copy}"
        return Remedy(Action.REFUSE, notice, loud=True)
    missing = copy.version - database.version
    notice = f"it lacked the last {missing} commit(s); taken from the second copy, version {copy.version}"
    return Remedy(Action.ROLL_FORWARD, notice, loud=missing > 1)


def refusal(path: str, copy_path: str, notice: str) -> MetadataCorrupt:
    """The error that asks the operator to decide."""
    return MetadataCorrupt(
        f"{path}: {notice}. Neither file is provably the newest state, so nothing was changed. Put back "
        f"{copy_path} or {path} from a backup taken after the last change of a table or partition; or, knowing "
        f"what was last created or dropped, follow 'When both are damaged' in docs/formats/metadata.md",
        path=path,
        copy_path=copy_path,
        reason=notice,
    )
