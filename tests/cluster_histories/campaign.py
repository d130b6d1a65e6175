"""Many histories of whole clusters in several processes: counted, told about meanwhile, and continued another time.

    python -m cluster_histories.campaign 100..100100 --processes 2 --minutes 60

in ``tests/`` (``make sim SEEDS=100..100100``). A seed that fails does not end it: it is told at once and again at the
end. Every line about its progress says with which seeds to go on.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context

from cluster_histories.history import run

PIECE = 20
"""Seeds that a process is given at a time."""
AHEAD = 2
"""Pieces for each process: the one it runs, and the next."""
TELL_S = 30.0

History = Callable[[int], object]
"""Raises what is wrong with the history of a seed. Other processes must find it by its name."""


def seeds_of(text: str) -> range:
    """``7..9`` is 7 and 8; ``7`` is 7 alone."""
    first, _, end = text.partition("..")
    return range(int(first), int(end) if end else int(first) + 1)


@dataclass
class Tally:
    """How far a campaign has come."""

    seeds: range
    count: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, what was wrong."""
    _rest: range = range(0)
    _done: dict[int, range] = field(default_factory=dict)
    """Pieces behind ``rest``, by their first seed."""

    def __post_init__(self) -> None:
        self._rest = self.seeds

    @property
    def rest(self) -> range:
        """From the first seed on that was not run."""
        return self._rest

    def add(self, piece: range, failed: dict[int, str]) -> None:
        """A piece was run."""
        self.count += len(piece)
        self.failed |= failed
        self._done[piece.start] = piece
        while (done := self._done.pop(self._rest.start, None)) is not None:
            self._rest = range(done.stop, self.seeds.stop)

    def __str__(self) -> str:
        told = f"{self.count:,} of {len(self.seeds):,} histories, {len(self.failed)} failed"
        if self.failed:
            told += f" ({', '.join(map(str, sorted(self.failed)))})"
        if self.rest:
            told += f"; go on with SEEDS={self.rest.start}..{self.rest.stop}"
        return told


def campaign(
    seeds: range,
    processes: int,
    *,
    history: History = run,
    say: Callable[[str], object] = print,
    goes_on: Callable[[], bool] = lambda: True,
) -> Tally:
    """Run the histories of all seeds, or of those that are begun while it goes on."""
    tally, pieces = Tally(seeds), _pieces(seeds)
    running: dict[Future[dict[int, str]], range] = {}
    told_at = time.monotonic()
    # New processes: a copy of this one would have its threads' locks, and not the threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while True:
            while (
                len(running) < AHEAD * processes and goes_on() and (piece := next(pieces, None)) is not None
            ):
                running[pool.submit(_run_piece, history, piece)] = piece
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                failed = done.result()
                tally.add(running.pop(done), failed)
                for seed, error in failed.items():
                    say(f"seed {seed}: {error}")
            if time.monotonic() - told_at > TELL_S:
                say(str(tally))
                told_at = time.monotonic()
    say(str(tally))
    return tally


def _pieces(seeds: range) -> Iterator[range]:
    return (seeds[at : at + PIECE] for at in range(0, len(seeds), PIECE))


def _run_piece(history: History, seeds: range) -> dict[int, str]:
    """What was wrong, by seed."""
    failed = {}
    for seed in seeds:
        try:
            history(seed)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also what is no Exception: the seed is to be told
            notes = getattr(error, "__notes__", [])
            failed[seed] = "\n".join([f"{type(error).__name__}: {error}", *notes])
    return failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=seeds_of, help="first..end")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later")
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    tally = campaign(
        options.seeds,
        options.processes,
        say=lambda line: print(line, flush=True),
        goes_on=lambda: time.monotonic() < end,
    )
    return bool(tally.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
