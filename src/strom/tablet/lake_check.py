"""A bucket and its copy in the lake: whether its log continues where the lake ends.

The lake holds a bucket's records before A, the last of which was written in epoch e. A log that ends before A has lost
records that the lake has (power loss under ``os``); one that has another epoch at A - 1 has taken another course. In
both cases reading the two as one would lose or repeat rows, so both are refused, with an error that says what to do.
"""

from __future__ import annotations

from strom.errors import LakeAhead, NotYetVisible, StaleEpoch, StromError
from strom.log.layout import NO_EPOCH
from strom.tablet.tablet import Tablet


def check_lake(tablet: Tablet, offset: int, epoch: int | None) -> None:
    """Refuse unless the records before ``offset`` are those of this log, and visible."""
    if offset <= 0:
        return
    if offset > tablet.end_offset:
        raise ahead(tablet, offset)
    found = tablet.epoch_before(offset)
    forgotten = found == NO_EPOCH and offset <= tablet.start_offset  # retention removed it with its segments
    if epoch is not None and found != epoch and not forgotten:
        raise StaleEpoch(
            f"bucket {tablet.bucket}: the record before {offset} is of epoch {found}, the lake's of epoch {epoch}, so "
            "they differ; plan again, and if that does not help, look at the table with `strom lake status`",
            bucket=str(tablet.bucket),
            offset=offset,
            epoch=epoch,
            found=found,
        )
    if offset > tablet.high_watermark:
        raise NotYetVisible(
            f"bucket {tablet.bucket}: offset {offset} is not visible yet, the high watermark is "
            f"{tablet.high_watermark}",
            offset=offset,
        )


def refusal_of(tablet: Tablet, offset: int, epoch: int) -> StromError | None:
    """Why a newly opened bucket must refuse writes: they would get offsets that the lake already uses."""
    try:
        check_lake(tablet, offset, epoch)
    except (LakeAhead, StaleEpoch) as error:
        return error
    except NotYetVisible:
        pass  # it is there, and will be visible
    return None


def ahead(tablet: Tablet, offset: int) -> LakeAhead:
    """The error of a bucket that lost what the lake holds."""
    what = (
        "run `strom tier`, which recreates it from the lake's rows; if there is a newer backup of its folder, restore "
        "that first. A partition that was recreated may be dropped (`strom partition drop`), which also removes the "
        "rows of its name from the lake"
        if tablet.has_keys
        else "run `strom tier`, which lets it go on where the lake ends"
    )
    return LakeAhead(
        f"bucket {tablet.bucket} ends at offset {tablet.end_offset}, and the lake holds it up to {offset}: the rows "
        f"between were lost here, and it accepts no writes until it continues behind them: {what}",
        bucket=str(tablet.bucket),
        end=tablet.end_offset,
        lake=offset,
    )
