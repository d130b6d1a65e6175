"""Runs histories: one seed, many, or with a rule broken.

python -m replication.specification.history --seed 4711 [--break NAME]     one history, its trace if it fails
python -m replication.specification.history --histories 20000              many, and counts of what happened in them
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable

from replication.specification.violation import Violation
from replication.specification.world import World

MakeWorld = Callable[[int, str], World]


def history(seed: int, broken: str = "", make_world: MakeWorld = World) -> tuple[str, World]:
    """What went wrong, or an empty text; and the world in which it did."""
    world = make_world(seed, broken)
    try:
        world.run()
    except Violation as violation:
        return str(violation), world
    except Exception as error:
        if not broken:
            raise
        return f"{type(error).__name__}: {error}", world  # a broken rule may show as anything
    return "", world


def histories(seeds: Iterable[int], make_world: MakeWorld = World) -> Counter[str]:
    """Run sound histories and count what happened in them; the first that fails is reported with its seed."""
    count: Counter[str] = Counter()
    for seed in seeds:
        why, world = history(seed, "", make_world)
        assert not why, f"seed {seed}: {why}"
        count += world.count
        count["histories"] += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--break", dest="broken", default="")
    options = parser.parse_args()
    if options.seed is not None:
        why, world = history(options.seed, options.broken)
        print(*world.trace, sep="\n  ")
        print(f"seed {options.seed}: {why or 'sound'}")
        return bool(why)
    count = histories(range(options.first_seed, options.first_seed + options.histories))
    for what, times in sorted(count.items()):
        print(f"  {times:11,} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
