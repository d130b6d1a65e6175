"""Which files of a snapshot to rewrite: small adjacent ones, and those with many dead rows.

A bucket's files are examined in the order of their offsets. Sizes have steps, each ``files`` times the one before, up
to half the target size. When ``files`` files of one step are adjacent, with nothing but smaller ones between them, they
become one. So a row is rewritten only a few times, however many rounds there are, and a bucket has a few files of every
step. Pure: nothing is read here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from strom.lake.files.file_description import is_own
from strom.lake.iceberg.held_files import HeldDeletes, HeldFile, HeldFiles
from strom.model.lake.lake import Place
from strom.model.lake.lake_upkeep import LakeUpkeep

STEPS = 3
"""Steps of sizes below a full file."""
DELETES_STEP_ROWS = 100_000
"""Delete files with fewer rows are in the first step."""


@dataclass(frozen=True)
class CompactionGroup:
    """Adjacent files of one bucket that become one or a few."""

    files: tuple[HeldFile, ...]

    @property
    def place(self) -> Place:
        """Their partition and bucket."""
        return self.files[0].place

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """What goes."""
        return frozenset(file.path for file in self.files)


def choose(held: HeldFiles, dead: Mapping[str, int], upkeep: LakeUpkeep) -> list[CompactionGroup]:
    """The groups to rewrite, cheapest first. ``dead``: the number of deleted rows by data file.

    With ``upkeep.files`` of 1, every file that is not full or has a dead row.
    """
    found: list[CompactionGroup] = []
    for files in _by_place(held.data).values():
        for stretch in _own_stretches(files):
            found += _of_bucket(stretch, dead, upkeep)
    return sorted(found, key=lambda group: group.size)


def crowded(deletes: Sequence[HeldDeletes], files: int) -> set[str]:
    """The delete files of one bucket to merge: enough of one step that name the same files."""
    steps: dict[tuple[str | None, int], list[str]] = defaultdict(list)
    for item in deletes:
        steps[item.only, _step(item.rows, DELETES_STEP_ROWS, files)].append(item.path)
    return {path for paths in steps.values() if len(paths) >= max(files, 2) for path in paths}


def _by_place(files: Sequence[HeldFile]) -> dict[Place, list[HeldFile]]:
    found: dict[Place, list[HeldFile]] = defaultdict(list)
    for file in files:
        found[file.place].append(file)
    return found


def _own_stretches(files: Sequence[HeldFile]) -> Iterator[list[HeldFile]]:
    """Without other engines' files, whose rows are in any order and may overlap ours."""
    stretch: list[HeldFile] = []
    reached = -1
    for file in files:
        if not is_own(file.path) or file.first_offset <= reached:
            yield stretch
            stretch = []
        if is_own(file.path):
            stretch.append(file)
        reached = max(reached, file.last_offset)
    yield stretch


def _of_bucket(
    files: Sequence[HeldFile], dead: Mapping[str, int], upkeep: LakeUpkeep
) -> list[CompactionGroup]:
    full = upkeep.file_bytes // 2
    first = max(full // upkeep.files ** (STEPS - 1), 1)
    steps = [_step(file.size, first, upkeep.files) if file.size < full else STEPS for file in files]
    taken: list[tuple[int, int]] = []
    for step in reversed(range(STEPS)):
        for start, end in _runs(steps, step):
            crowd = sum(1 for one in steps[start:end] if one == step) >= upkeep.files
            worth = end - start > 1 or bool(dead.get(files[start].path))
            if crowd and worth and not any(low < end and start < high for low, high in taken):
                taken.append((start, end))
    inside = {at for start, end in taken for at in range(start, end)}
    for at, file in enumerate(files):
        gone = dead.get(file.path, 0)
        large = steps[at] > 0 or gone == file.rows
        if at not in inside and large and gone and gone * 100 >= file.rows * upkeep.dead_percent:
            taken.append((at, at + 1))
    return [CompactionGroup(tuple(files[start:end])) for start, end in taken]


def _runs(steps: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """The longest runs of files of this step and below."""
    start = 0
    for at in range(len(steps) + 1):
        if at == len(steps) or steps[at] > most:
            if at > start:
                yield start, at
            start = at + 1


def _step(size: int, first: int, factor: int) -> int:
    step = 0
    while size >= first:
        first *= max(factor, 2)
        step += 1
    return step
