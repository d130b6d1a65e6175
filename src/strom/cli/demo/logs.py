"""Chapter: a log table. Rows arrive in columns, and a reader moves only the columns and days it needs."""

from __future__ import annotations

from strom.cli.demo.shop import DAYS, Shop, clicks
from strom.cli.demo.story import Story


def tell(story: Story, shop: Shop, rows: int) -> None:
    """Append, read back, prune, filter, follow."""
    story.chapter(
        "Clicks: a log table",
        "Rows are stored in columns as soon as they arrive. Offsets are dense, batches are idempotent,",
        "and an acknowledgement means that the rows are on disk.",
    )
    shop.click(rows)
    story.rate("clicks appended and synced", shop.clicks)
    table = shop.table("clicks")
    everything = table.scan().to_arrow()
    story.say(f"scanned all 8 columns: {everything.nbytes / 1e6:,.0f} MB of Arrow")
    story.equal(everything.num_rows, shop.clicks, "every click is there, once")
    narrow = table.scan(columns=["country", "took_ms"], partitions={"day": DAYS[-1]}).to_arrow()
    story.say(f"scanned 2 of 8 columns of 1 of 3 days: {narrow.nbytes / 1e6:,.1f} MB left the server")
    means = narrow.group_by("country").aggregate([("took_ms", "mean"), ("took_ms", "count")])
    story.table(
        ["country", "mean took_ms", "clicks"],
        [
            [row["country"], row["took_ms_mean"], row["took_ms_count"]]
            for row in means.sort_by("country").to_pylist()
        ],
    )
    found = table.scan(where="click_id >= 500 and click_id < 505", columns=["click_id", "page"]).to_arrow()
    story.say("filtered on the server, batches skipped by their statistics")
    story.equal(sorted(found["click_id"].to_pylist()), list(range(500, 505)), "five clicks pass the filter")
    _follow(story, shop)


def _follow(story: Story, shop: Shop) -> None:
    table = shop.table("clicks")
    with table.tail(start="latest") as tail:
        table.append(clicks(shop.clicks, 3, DAYS[-1]))
        table.flush()
        batch = next(iter(tail))
    shop.clicks += 3
    story.say(
        f"a live reader got {batch.data.num_rows} new rows: bucket {batch.bucket.bucket}, "
        f"offset {batch.base_offset}, written {batch.timestamp:%H:%M:%S.%f}"
    )
    story.equal(
        batch.data["click_id"].to_pylist(), list(range(shop.clicks - 3, shop.clicks)), "and just these"
    )
