"""Let a log go on beyond its end, when the lake has records that the log lost.

    before   records [start, end), then a gap: [end, offset) is in the lake, the last of it written in ``epoch``
    after    no record; the next one gets ``offset``, in an epoch that no record ever had

For a log that is closed. The new history of epochs is durable before the first segment goes: a crash in between
leaves the log as it was, since a log with segments goes by where they end.
"""

from __future__ import annotations

from strom.errors import OffsetOutOfRange, StaleEpoch
from strom.log import layout as at
from strom.log.epochs import LEAP, Epochs, EpochStart, decode_epochs
from strom.log.opening.mend import remove_segment
from strom.log.segment import Segment
from strom.runtime.files import Files


def resume_at(files: Files, folder: str, *, end: int, offset: int, epoch: int) -> None:
    """Remove what a log holds and let it begin at ``offset``. ``end``: where it ends now."""
    if offset <= end:
        raise OffsetOutOfRange(
            f"the log ends at {end}: it does not go on at {offset}", end=end, offset=offset
        )
    path = f"{folder}/{at.EPOCHS_NAME}"
    known = decode_epochs(files.read_whole(path)) if files.exists(path) else Epochs()
    files.make_folder(folder)
    files.write_whole(path, leapt(known, end=end, offset=offset, epoch=epoch).encode())
    bases = sorted(base for name in files.list(folder) if (base := at.base_offset_of(name)) is not None)
    for base in bases:
        remove_segment(files, Segment(folder, base))
        # One by one, so that power loss can never leave a gap in the middle.
        files.sync_folder(folder)


def leapt(known: Epochs, *, end: int, offset: int, epoch: int) -> Epochs:
    """The history in which the records [end, offset) are of ``epoch``, and a new epoch begins behind them."""
    kept = [start for start in known.starts if start.start_offset < end]  # the others never had a record
    newest = kept[-1].epoch if kept else at.NO_EPOCH
    if epoch < newest:
        raise StaleEpoch(
            f"the record before {offset} is said to be of epoch {epoch}, but the log had a later one: {newest}",
            epoch=epoch,
            newest=newest,
        )
    if epoch > newest:
        kept.append(EpochStart(epoch, end))
    latest = max(known.latest, epoch) + (LEAP if known.damaged else 1)
    return Epochs((*kept, EpochStart(latest, offset)), latest)
