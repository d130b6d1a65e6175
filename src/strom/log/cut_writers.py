"""What a log knows about its writers once its end was cut off.

Most often a writer's remembered batches tell: those behind the cut are forgotten, those before it stay. Of a writer of
which nothing is left that way, earlier batches are looked for: in the checkpoint, which also knows of those whose
segments are gone, and in the log from there on.
"""

from __future__ import annotations

from strom.errors import ChecksumMismatch
from strom.log.chain import Chain
from strom.log.opening.recovery import read_checkpoint
from strom.log.reading.seek import entries_from
from strom.log.writers import Writers
from strom.runtime.files import Files


def cut_writers(files: Files, folder: str, chain: Chain, writers: Writers, end_offset: int) -> None:
    """Forget what writers gave at or behind ``end_offset``, and remember what they gave before."""
    lost = writers.cut(end_offset)
    if not lost:
        return
    begin = chain.start_offset
    checkpoint = read_checkpoint(files, folder)
    earlier = writers.none()
    if checkpoint is not None and begin <= checkpoint.end_offset <= end_offset:
        begin = checkpoint.end_offset
        earlier = writers.none({one: state for one, state in checkpoint.writers.items() if one in lost})
    try:
        for entry in entries_from(chain, begin, end_offset):
            if entry.writer_id in lost:
                earlier.replay(entry)
    except ChecksumMismatch:
        pass  # what lies behind a damaged batch is not known: its writers get OutOfOrderSequence
    writers.join(earlier)
