"""What a person submits to keep a join: a program with a session that names no master, and SQL.

spark-submit [options] submitted_join.py SERVERS CHECKPOINT
"""

from __future__ import annotations

import sys

import strom.spark


def main(servers: str, checkpoint: str) -> None:
    """Keep the join until it holds all there is, and say what it holds."""
    spark = strom.spark.session(servers)
    wide = strom.spark.delta_join(
        "fluss.orders",
        "fluss.payments",
        on="k",
        how="full",
        select=["left.id as order_id", "right.id as payment_id", "k", "price", "paid"],
        into="fluss.wide",
    )
    wide.start(checkpoint, trigger={"availableNow": True}).wait()
    (held,) = spark.sql("SELECT count(*), sum(price), sum(paid) FROM strom.fluss.wide").collect()
    print("the join holds", *held)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
