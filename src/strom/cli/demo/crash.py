"""Chapter: kill -9 in mid-write. What was acknowledged is there, nothing is there twice."""

from __future__ import annotations

import threading

from strom.cli.demo.own_server import OwnServer
from strom.cli.demo.shop import DAYS, Shop, clicks
from strom.cli.demo.story import Story

BATCH_ROWS = 500
BEFORE = 20
AFTER = 20


def tell(story: Story, shop: Shop, server: OwnServer) -> None:
    """Write while the server is killed and restarted; then count."""
    story.chapter(
        "kill -9 in mid-write",
        "A writer keeps writing while the server is killed and restarted. It repeats what was not acknowledged;",
        "the server knows batches by their writer and number, so a repeated one counts once.",
    )
    first = shop.clicks
    written = threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        table = shop.table("clicks")
        try:
            for number in range(BEFORE + AFTER):
                table.append(clicks(first + number * BATCH_ROWS, BATCH_ROWS, DAYS[-1]))
                if number % 4 == 3:
                    table.flush()
                if number == BEFORE:
                    written.set()
            table.flush()
        except Exception as error:
            errors.append(error)
        finally:
            written.set()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    written.wait()
    server.kill()
    story.say("killed the server while batches were on the way")
    took = server.start()
    story.say(f"restarted it on the same folder: ready after {took:.2f} s")
    thread.join()
    story.equal(errors, [], "the writer noticed nothing but a pause")
    shop.clicks += (BEFORE + AFTER) * BATCH_ROWS
    found = shop.table("clicks").scan(columns=["click_id"], where=f"click_id >= {first}").to_arrow()
    numbers = sorted(found["click_id"].to_pylist())
    story.equal(len(numbers), (BEFORE + AFTER) * BATCH_ROWS, "every row written meanwhile is there")
    story.check(numbers == list(range(first, shop.clicks)), "and none of them twice")
    story.equal(shop.table("orders").count(), len(shop.orders), "the orders are all there")
