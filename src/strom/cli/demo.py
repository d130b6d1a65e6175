"""``strom demo``: what Strom does so far, on a server of its own, in a few seconds. First chapter: log tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.connection import Connection
from strom.cli.output import print_table
from strom.cli.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.api import Database, Table

HELP = """Show what Strom does, in a few seconds, on data made up on the spot.

Runs on a server inside this process and a temporary folder unless --on says where.

\b
Examples:
  strom demo
  strom demo --rows 5000000
  strom --server localhost:9123 demo --on server
"""

DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")


def demo(
    context: typer.Context,
    rows: Annotated[int, typer.Option(min=1000, help="How many rows to write.")] = 1_000_000,
    on: Annotated[
        str, typer.Option(help="'here' (a server of its own) or 'server' (the one of --server).")
    ] = "here",
) -> None:
    """Write, read back, prune, filter, follow; then a table with a key."""
    from strom.cli.demo_keys import show_keys

    watch = Watch()
    with _database(context, on) as database:
        database.drop_table("demo_clicks", if_missing="ignore")
        table = _create(database, watch)
        _write(table, rows, watch)
        _read(table, watch)
        _follow(table, watch)
        _evolve(table, watch)
        database.drop_table("demo_clicks")
        show_keys(database, max(1000, rows // 5), watch)
    print(
        "\nNext: `strom up` in one terminal, `strom --help` in another; the README has ten lines of Python."
    )


@contextmanager
def _database(context: typer.Context, on: str) -> Iterator[Database]:
    import strom

    if on == "server":
        connection = context.find_object(Connection)
        assert connection is not None
        with strom.connect(connection.server, user=connection.user, password=connection.password) as database:
            yield database
        return
    if on != "here":
        raise typer.BadParameter("--on takes 'here' or 'server'")
    with tempfile.TemporaryDirectory(prefix="strom-demo-") as folder, strom.open(folder) as database:
        yield database


def _create(database: Database, watch: Watch) -> Table:
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("click_id", pa.int64(), nullable=False),
            ("user_id", pa.int64()),
            ("page", pa.string()),
            ("country", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("took_ms", pa.float64()),
            ("at", pa.timestamp("ms")),
            ("day", pa.string()),
        ]
    )
    table = database.create_table("demo_clicks", schema, partition_by=["day"], buckets=2)
    watch.say("a server is up, and table demo_clicks (8 columns, partitioned by day, 2 buckets) is created")
    return table


def _clicks(start: int, count: int, day: str) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(start, start + count, dtype=np.int64)
    mixed = (numbers * 2_654_435_761) % 1_000_003
    pages = np.array([f"/shop/item-{i}" for i in range(500)])
    countries = np.array(["DE", "FR", "IN", "JP", "US"])
    midnight = np.datetime64(day, "ms")
    return pa.RecordBatch.from_pydict(
        {
            "click_id": pa.array(numbers),
            "user_id": pa.array(mixed % 50_000),
            "page": pa.array(pages[mixed % 500]),
            "country": pa.array(countries[mixed % 5]),
            "price": pa.array(mixed % 20_000)
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(10, 2), safe=False),
            "took_ms": pa.array((mixed % 977) / 7.0),
            "at": pa.array(midnight + (numbers % 86_400_000).astype("timedelta64[ms]")),
            "day": pa.array([day] * count),
        }
    )


def _write(table: Table, rows: int, watch: Watch) -> None:
    written = 0
    per_day = rows // len(DAYS)
    with table.writer() as writer:
        for day in DAYS:
            for start in range(0, per_day, 10_000):
                count = min(10_000, per_day - start)
                writer.append(_clicks(written, count, day))
                written += count
    seconds = watch.lap()
    print(
        f"[{seconds:6.2f} s] appended {written:,} rows, synced to disk ({written / seconds:,.0f} rows/s)",
        flush=True,
    )


def _read(table: Table, watch: Watch) -> None:
    everything = table.scan().to_arrow()
    watch.say(f"scanned all {everything.num_rows:,} rows, {everything.nbytes / 1e6:,.0f} MB of Arrow")
    narrow = table.scan(columns=["country", "took_ms"], partitions={"day": DAYS[-1]}).to_arrow()
    watch.say(
        f"scanned 2 of 8 columns of 1 of 3 days: {narrow.num_rows:,} rows, {narrow.nbytes / 1e6:,.1f} MB"
    )
    means = (
        narrow.group_by("country").aggregate([("took_ms", "mean"), ("took_ms", "count")]).sort_by("country")
    )
    print_table(
        ["country", "mean took_ms", "clicks"],
        [
            [row["country"], f"{row['took_ms_mean']:.2f}", f"{row['took_ms_count']:,}"]
            for row in means.to_pylist()
        ],
    )
    watch.lap()
    found = table.scan(
        where="click_id >= 500 and click_id < 505", columns=["click_id", "page", "price"]
    ).to_arrow()
    watch.say(f"filtered on the server (batches skipped by their statistics): {found.num_rows} rows")
    print_table(found.column_names, [[str(value) for value in row.values()] for row in found.to_pylist()])
    watch.lap()


def _follow(table: Table, watch: Watch) -> None:
    tail = table.tail(start="latest")
    table.append(_clicks(10**9, 3, DAYS[-1]))
    table.flush()
    batch = next(iter(tail))
    watch.say(
        f"a live reader got {batch.data.num_rows} new rows: bucket {batch.bucket.bucket}, "
        f"offset {batch.base_offset}, written {batch.timestamp:%H:%M:%S.%f}"
    )
    tail.close()


def _evolve(table: Table, watch: Watch) -> None:
    import pyarrow as pa

    table.add_column("campaign", pa.string())
    seen = table.scan(columns=["click_id", "campaign"], limit=1).to_arrow().to_pylist()
    watch.say(f"added a column to the live table; old rows read it as NULL: {seen}")
