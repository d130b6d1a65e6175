"""Runs histories: one seed, many, or with a rule broken.

python -m remote.specification.history [--model chain|server|restore] [--histories 8000] [--break NAME]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from remote.specification.violation import Violation


class Playable(Protocol):
    """A history."""

    count: Counter[str]

    def run(self) -> None:
        """The whole of it; a Violation when a promise is not kept."""


Make = Callable[[int, str], Playable]


def history(seed: int, broken: str, make: Make) -> tuple[str, Playable]:
    """What went wrong, or an empty text; and the history in which it did."""
    world = make(seed, broken)
    try:
        world.run()
    except Violation as violation:
        return str(violation), world
    except Exception as error:
        if not broken:
            raise
        return f"{type(error).__name__}: {error}", world  # a broken rule may show as anything
    return "", world


def histories(seeds: Iterable[int], make: Make) -> Counter[str]:
    """Run sound histories and count what happened in them; the first that fails is reported with its seed."""
    count: Counter[str] = Counter()
    for seed in seeds:
        why, world = history(seed, "", make)
        assert not why, f"seed {seed}: {why}"
        count += world.count
        count["histories"] += 1
    return count


def main() -> int:
    from remote.specification.models import MODELS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="chain")
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--break", dest="broken", default="", help="a rule, or `all`")
    options = parser.parse_args()
    model = MODELS[options.model]
    seeds = range(options.first_seed, options.first_seed + options.histories)
    if not options.broken:
        for what, times in sorted(histories(seeds, model.make).items()):
            print(f"  {times:11,} {what}")
        return 0
    for name in model.mutants if options.broken == "all" else [options.broken]:
        found = [seed for seed in seeds if history(seed, name, model.make)[0]]
        first = f"{found[0]}: {history(found[0], name, model.make)[0]}" if found else "-"
        print(f"{name:24} {len(found)}/{len(seeds)} broken, first {first}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
