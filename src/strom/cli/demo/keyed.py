"""Chapter: a table with a key. Upserts, lookups, an index, an earlier instant, the changelog."""

from __future__ import annotations

from pathlib import Path

from strom.cli.demo.installing import compile_kernels, wait_for
from strom.cli.demo.shop import CITIES, Shop
from strom.cli.demo.story import Story

LOOKUPS = 500


def tell(story: Story, shop: Shop, rows: int, folder: Path) -> None:
    """Upsert, look up, go back, replay."""
    story.chapter(
        "Customers: a primary-key table",
        "The same log, plus an index from a key to the offset of its newest row. Rows are stored once, in columns.",
    )
    wait_for("keys", "this chapter needs Numba, which is still being installed", story)
    compile_kernels(story, folder)
    shop.create_keyed()
    table = shop.table("customers")
    with story.patience():
        table.upsert([{"customer_id": 0, "name": "first", "city": CITIES[0], "spent": 0.0}])
        table.flush()
    story.say("the server is ready for keys")
    story.rate("upserts and deletes, synced", shop.welcome(rows))
    found = {row["customer_id"]: row for row in table.scan().to_arrow().to_pylist()}
    story.say(f"scanned the {len(found):,} live rows")
    story.check(found == shop.customers, "the table equals a dict that took the same changes")
    _look_up(story, shop)
    _go_back(story, shop)
    _replay(story, shop)


def _look_up(story: Story, shop: Shop) -> None:
    table, watch = shop.table("customers"), story.watch
    keys = [number * 7919 % (max(shop.customers) + 1) for number in range(LOOKUPS)]
    took, right = [], True
    for key in keys:
        began = watch.now()
        row = table.lookup(key)
        took.append((watch.now() - began) * 1e6)
        right = right and row == shop.customers.get(key)
    took.sort()
    story.say(
        f"{LOOKUPS} single lookups: median {took[len(took) // 2]:,.0f} µs, "
        f"p99 {took[len(took) * 99 // 100]:,.0f} µs"
    )
    story.check(right, "each gave the newest row of its key, or none")
    missing = dict.fromkeys(table.schema.names)
    many = table.lookup_many(keys).to_pylist()
    story.say(f"the same {LOOKUPS} keys in one call")
    story.check(
        many == [shop.customers.get(key, missing) for key in keys], "in the order asked, misses as NULLs"
    )
    found = table.lookup_index("by_city", CITIES[0], columns=["customer_id"])["customer_id"].to_pylist()
    story.say(f"by the index on city: {len(found):,} customers in {CITIES[0]}")
    expected = sorted(key for key, row in shop.customers.items() if row["city"] == CITIES[0])
    story.check(sorted(found) == expected, "as many as the dict has")


def _go_back(story: Story, shop: Shop) -> None:
    table = shop.table("customers")
    instant = table.scan().plan().offsets
    key = max(shop.customers)
    table.upsert({"customer_id": [key], "spent": [1e9]}, columns=["customer_id", "spent"])
    shop.customers[key] = shop.customers[key] | {"spent": 1e9}
    story.equal(table.lookup(key), shop.customers[key], "a partial update changed one column of one customer")
    then = table.scan(["spent"], where="spent = 1000000000.0", at=instant).to_arrow()
    story.equal(then.num_rows, 0, "a scan at the instant before it shows the table without it")


def _replay(story: Story, shop: Shop) -> None:
    log = shop.table("customers").changelog(columns=["customer_id", "spent"]).to_arrow()
    replayed: dict[int, float] = {}
    columns = (log[name].to_pylist() for name in ("_change_type", "customer_id", "spent"))
    for kind, key, spent in zip(*columns, strict=True):
        if kind in ("+I", "+U"):
            replayed[key] = spent
        elif kind == "-D":
            del replayed[key]
    story.say(f"read the changelog: {log.num_rows:,} changes; its end:")
    end = log.slice(log.num_rows - 2).to_pylist()
    story.table(
        ["change", "offset", "customer_id", "spent"],
        [[row["_change_type"], row["_log_offset"], row["customer_id"], row["spent"]] for row in end],
    )
    expected = {key: row["spent"] for key, row in shop.customers.items()}
    story.check(replayed == expected, "replaying the changelog gives the table")
