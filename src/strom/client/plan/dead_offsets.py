"""Dead rows of a primary-key bucket: the offsets below A whose rows died in [A, B).

The lake holds the images below A. Without these offsets it is exactly the part of them that is live at B.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.key_plan import Instant
from strom.errors import InvalidRequest
from strom.protocol.api_keys import SCAN_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import ScanRowsRequest

Offsets = npt.NDArray[np.int64]


async def dead_offsets(
    cluster: Cluster, table: TableInfo, instant: Instant, *, start_epoch: int | None = None
) -> Offsets:
    """The offsets below ``instant.start`` that died before ``instant.at``, ascending; retries transient errors.

    ``start_epoch`` is the epoch of the record before the start as the caller knows it: a server that knows another one
    refuses with ``StaleEpoch``. ``Expired`` when the server no longer keeps the deaths since then.
    """
    if instant.start <= 0:
        return np.zeros(0, np.int64)
    if instant.bucket.partition_id is not None:
        await cluster.find_leaders(table, [instant.bucket.partition_id])
    parts: list[Offsets] = []
    place: int | None = instant.start
    while place is not None:
        asked: int = place

        async def ask(asked: int = asked) -> tuple[Offsets, int | None]:
            return await _ask(cluster, table, instant, start_epoch, asked)

        found, place = await cluster.at_leaders(table, [instant.bucket], ask)
        if place is not None and not asked < place < instant.at:
            raise InvalidRequest("the server's dead offsets do not come to an end", bucket=instant.bucket)
        parts.append(found)
    if len(parts) == 1:
        return parts[0]
    every = np.sort(np.concatenate(parts))
    if bool(np.any(np.diff(every) <= 0)):
        raise InvalidRequest("the server sent a dead offset twice", bucket=instant.bucket)
    return every


async def _ask(
    cluster: Cluster, table: TableInfo, instant: Instant, start_epoch: int | None, dead_from: int
) -> tuple[Offsets, int | None]:
    """Rows that records from ``dead_from`` on killed, and where to continue."""
    schema = table.schema
    request = ScanRowsRequest(
        table_id=table.table_id,
        partition_id=instant.bucket.partition_id,
        bucket_id=instant.bucket.bucket,
        at=instant.at,
        at_epoch=instant.epoch,
        start=instant.start,
        start_epoch=start_epoch,
        columns=[schema.position(schema.primary_key[0])],
        limit=1,  # the rows themselves are read elsewhere, in parts
        max_bytes=0,
        dead=True,
        dead_from=None if dead_from == instant.start else dead_from,
        schema_id=schema.schema_id,
    )
    answer = await cluster.call(cluster.leader(instant.bucket), SCAN_ROWS, request, lane="scan")
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return _checked(bytes(whole(answer.dead or b"")), instant), answer.dead_next


def _checked(data: bytes, instant: Instant) -> Offsets:
    if len(data) % 8:
        raise InvalidRequest("the server's answer is no list of offsets", bucket=instant.bucket)
    found = np.frombuffer(data, "<i8").astype(np.int64, copy=False)
    if len(found) and (found[0] < 0 or found[-1] >= instant.start or bool(np.any(np.diff(found) <= 0))):
        raise InvalidRequest("the server's dead offsets do not rise below the start", bucket=instant.bucket)
    return found
