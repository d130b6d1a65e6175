"""Broken rules, each with the seed of a history that shows it."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A rule that is broken, and a history that shows it."""

    rule: str
    seed: int


MUTANTS = {
    "hw-leader-end": Mutant("R6: acknowledged at the leader's end", 1),
    "hw-of-majority": Mutant(
        "R6: the high watermark is what a majority has, the leader comes from the in-sync set", 1
    ),
    "hw-of-unsynced": Mutant("R6: under ``group`` a report counts before it is synced", 9),
    "hw-of-known-isr": Mutant("R7: a join under way is not counted yet", 6),
    "proposal-forgotten": Mutant("R7: a proposal without an answer is given up after a while", 390),
    "report-before-match": Mutant("R5: a report counts before the logs were compared", 5),
    "report-of-any-identity": Mutant("R5: a report counts for the server, whatever its copy is", 312),
    "placement-not-named": Mutant(
        "R19: a server that was removed and added again is taken for the copy it had", 312
    ),
    "elect-outside-isr": Mutant("R4: any live replica may lead", 2),
    "unclean-os-counts": Mutant("R4: under ``os`` a copy that lost its page cache stays in sync", 19),
    "replaced-disk-counts": Mutant("R4: a server with a new disk stays in sync", 11),
    "restart-keeps-epoch": Mutant("R3: a restarted leader goes on in its epoch", 6),
    "coordinator-without-cas": Mutant("R1: a coordinator writes without requiring the version it read", 11),
    "isr-below-min-insync": Mutant("R9: the in-sync set shrinks below min.insync", 81),
    "ack-below-min-insync": Mutant("R9: acknowledged although fewer than min.insync copies are in sync", 178),
    "join-without-report": Mutant("R16: a server joins that has not pulled in this epoch", 11),
    "join-at-hw": Mutant("R16: joins at the watermark the new leader knows, not at its epoch's start", 244),
    "join-unsynced": Mutant("R16: joins with a log that is in memory only", 195),
    "join-without-stages": Mutant("R16: joins without the stages", 4),
    "removed-before-joined": Mutant("R19: the old replica goes before the new one is in sync", 480),
    "no-diverging-check": Mutant("R8: a follower goes on at its end without comparing epochs", 5),
    "truncate-to-hw": Mutant("R8: a follower cuts to its high watermark instead of by epochs", 11),
    "open-group-kept": Mutant("R13: a new leader keeps what it pulled of a group", 62),
    "closed-group-cut": Mutant("R13: a new leader cuts a closed group above its watermark, too", 15),
    "open-group-shipped": Mutant("R13: a leader ships a group before it is closed, then takes it back", 1),
    "follower-shows-half-a-group": Mutant("R13: a follower's end moves batch by batch inside a group", 2),
    "hw-into-group": Mutant("R13: a follower reports an end inside a group", 3),
    "marks-late": Mutant("R13: a follower learns of a group after its batches", 2),
    "seal-acked-by-leader": Mutant("R14: a seal is acknowledged when the leader has it", 1),
    "stages-dropped-first": Mutant("R15: a follower that begins again drops what it has not mirrored yet", 2),
    "answer-to-another-question": Mutant(
        "R12: an answer is taken although the follower was restarted or has moved on", 1
    ),
    "stage-dropped-at-append": Mutant(
        "R17: a stage goes when its group is appended, not when it is committed", 1
    ),
    "writers-not-rebuilt": Mutant("R20: a follower does not learn the writers' sequences", 5),
    "writers-not-cut": Mutant("R20: truncation leaves the writers' sequences as they were", 11),
    "duplicate-acked-at-once": Mutant(
        "R20: a repeated batch is acknowledged without waiting for the watermark", 1
    ),
    "index-not-undone": Mutant("R8: truncation does not undo the index", 1),
    "copy-without-writers": Mutant("R18: a copied base lacks the writers", 18),
    "copy-without-number": Mutant("R18: a copied base lacks the newest group's number", 59),
    "copy-mixes-bases": Mutant("R18: the base moves on while it is copied", 35),
    "read-before-epoch-start": Mutant("R11: a new leader serves what it knows to be committed", 18),
    "memory-without-epoch": Mutant("R11: a reader remembers an offset only", 524),
    "strong-without-barrier": Mutant("R22: a strong lookup is answered by whoever thinks that he leads", 372),
    "lake-to-hw": Mutant("R23: a round goes to the high watermark under ``os``", 62),
    "recovery-on-old-registrations": Mutant(
        "R10: a loss is declared without requiring the registrations that show it", 363
    ),
    "recover-from-all": Mutant(
        "R10: after a power loss of all the highest (epoch, end) of any replica leads, in sync or not", 201728
    ),
    "recover-first-come": Mutant("R10: after a power loss of all the first to return leads", 181),
}

CUT_OFF = {
    "cut-off-leader-stays": Mutant("R21: a leader that is cut off from its followers goes on leading", 1),
    "cut-off-replaced-by-anybody": Mutant(
        "R21: who reaches the others replaces a leader that is cut off, in sync or not", 18
    ),
    "cut-off-leader-keeps-its-epoch": Mutant("R21: a leader that is cut off is replaced in its epoch", 4),
}
"""Shown by histories of a ``CutOffWorld``."""
