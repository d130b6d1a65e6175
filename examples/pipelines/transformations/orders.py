"""Orders from Strom: a view of what is there, a table that follows the changes, and a sink back into Strom.

Tables: ``shop.orders`` (primary key ``id``; ``customer``, ``price``) and ``shop.large_orders`` (the same columns).
``format("strom")`` is found by itself where Strom is installed.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SERVERS = {"bootstrap.servers": os.environ.get("STROM_SERVERS", "localhost:9123")}
spark = SparkSession.active()


@dp.materialized_view
def spending() -> DataFrame:
    """What every customer spent, from the table as it is now."""
    orders = spark.read.format("strom").options(**SERVERS).load("shop.orders")
    return orders.groupBy("customer").agg(F.sum("price").alias("spent"))


@dp.table
def order_changes() -> DataFrame:
    """Every insert, update and delete: first the whole table, then what happens to it."""
    return spark.readStream.format("strom").options(**SERVERS).load("shop.orders$changelog")


dp.create_sink("large_orders", "strom", {**SERVERS, "table": "shop.large_orders"})


@dp.append_flow(target="large_orders")
def large_orders() -> DataFrame:
    """Orders above a hundred, copied exactly once; deletes follow."""
    changes = spark.readStream.format("strom").options(**SERVERS).load("shop.orders$changelog")
    large = changes.where("price > 100 AND _change_type <> '-U'")
    return large.select("_change_type", "id", "customer", "price")
