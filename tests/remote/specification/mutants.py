"""Broken rules of the remote chain of one bucket, each with the seed of a history that shows it."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A rule that is broken, and a history that shows it."""

    rule: str
    seed: int


MUTANTS = {
    "overwrite": Mutant("C1: a manifest replaces one of the same number", 88),
    "trust-unknown": Mutant("C2: a put without an answer is taken for done", 4),
    "no-epoch": Mutant("C3: manifests name no epoch", 467),
    "ignore-epoch": Mutant("C3: a higher epoch in the newest manifest fences nobody", 467),
    "no-compare": Mutant("C4: after a loss a leader goes on without comparing", 0),
    "local-wins": Mutant("C4: after a loss the leader's own rows win over uploaded ones", 41),
    "per-election": Mutant("C4: only the leader of the unclean election itself compares", 24),
    "to-end": Mutant("C5: rows above the stable watermark are uploaded", 9),
    "names-again": Mutant("C6: an object's name is its range, and is used again", 0),
    "sweep-all": Mutant("C7: whatever the manifest does not name is swept", 0),
    "delete-early": Mutant("C8: local rows go when they are on their way up", 0),
}
