"""What a person sees of a tiering service: a bar for every round under way, and a line for every round that ended.

Without a terminal there are only the lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from strom.client.admin.lake_admin import Assigned
from strom.errors import StromError
from strom.lake.rounds.round import RoundProgress, RoundResult
from strom.lake.rounds.service import RoundEnd, RoundListener
from strom.lake.upkeep.maintenance import Upkept
from strom.runtime.units import counted


class Lines(RoundListener):
    """A line for every round that did something."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._silent = False

    def ended(self, end: RoundEnd) -> None:
        """Print what it did; nothing for a round that found nothing new."""
        self._silent = False
        if end.result is not None:
            if end.result.rows or end.result.deletes or not end.result.upkeep.idle:
                self._say(f"{end.assigned.path}: {told(end.result)}")
        elif end.quarantined:
            self._say(f"{end.assigned.path}: QUARANTINED: {end.error}")
        elif not end.given_up:
            self._say(f"{end.assigned.path}: failed, tried again later: {end.error}")

    def unreachable(self, error: StromError) -> None:
        """Print it once."""
        if not self._silent:
            self._say(f"the coordinator does not answer: {error}")
            self._silent = True

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """Bars above the lines. Use as a context."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bars: dict[int, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def began(self, assigned: Assigned) -> None:
        """A bar of unknown length."""
        self._bars[assigned.round] = self._progress.add_task(f"{assigned.path}: planning", total=None)

    def going(self, rounds: Sequence[tuple[RoundProgress, int]]) -> None:
        """Move the bars."""
        for progress, done in rounds:
            bar = self._bars.get(progress.assigned.round)
            if bar is not None:
                self._progress.update(
                    bar,
                    description=f"{progress.assigned.path}: {progress.step}",
                    total=progress.rows_planned or None,
                    completed=done,
                )

    def ended(self, end: RoundEnd) -> None:
        """Take the bar away."""
        bar = self._bars.pop(end.assigned.round, None)
        if bar is not None:
            self._progress.remove_task(bar)
        super().ended(end)


def told(result: RoundResult) -> str:
    """A round in a few words."""
    seconds = result.took.get("round", 0.0)
    words = [counted(result.rows, "row")]
    if result.deletes:
        words.append(counted(result.deletes, "delete"))
    words.append(f"{counted(result.files, 'file')}, {result.size_bytes / 1e6:,.1f} MB")
    words.append(f"{seconds:.1f} s")
    steps = ", ".join(f"{step} {took:.1f}" for step, took in result.took.items() if step != "round")
    text = ", ".join(words) + f" ({steps})"
    return text + (", more to come" if result.more else "") + _kept_up(result.upkeep)


def _kept_up(done: Upkept) -> str:
    """What upkeep did afterwards."""
    words = []
    if done.files_before:
        words.append(f"{counted(done.files_before, 'file')} became {done.files_after}")
    if done.rows_removed:
        words.append(f"{counted(done.rows_removed, 'dead row')} dropped")
    if done.files_removed:
        words.append(f"{counted(done.files_removed, 'old file')} removed")
    return f"; {', '.join(words)}" if words else ""
