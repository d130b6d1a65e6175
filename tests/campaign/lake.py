"""The lake, read by somebody who knows nothing of Strom, compared with the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog.sql import SqlCatalog

import strom
from campaign.checks import demand
from campaign.log_actors import LOG, Row


def check_lake(db: strom.Database, found: Mapping[int, Sequence[Row]]) -> int:
    """Each row of the log is in the lake once, at its offset. Returns how many rows there are."""
    config = db.lake(LOG).config
    assert config is not None
    catalog = SqlCatalog("strom", uri=f"sqlite:///{config.catalog_uri}", warehouse=config.warehouse)
    try:
        path = db.table(LOG).info.path
        rows = catalog.load_table((path.database, path.table)).scan().to_arrow()
    finally:
        catalog.engine.dispose()
    columns = (rows[name].to_pylist() for name in ("__bucket", "__offset", "writer", "number"))
    lake = sorted(zip(*columns, strict=True))
    log = sorted(
        (bucket, offset, *row) for bucket, those in found.items() for offset, row in enumerate(those)
    )
    first = next((pair for pair in zip(lake, log, strict=False) if pair[0] != pair[1]), None)
    demand(lake == log, f"the lake has {len(lake)} rows, the log {len(log)}; the first to differ: {first}")
    return len(lake)
