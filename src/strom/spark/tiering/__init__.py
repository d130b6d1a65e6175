"""The tiering service: brings tables of Strom into the lake, round by round, as PySpark jobs.

A *round* of one table reads from every bucket what the lake has not got (``round_plan.py`` decides what; ``worker.py``
reads it and writes Parquet in Spark's Python workers, so no row passes through the JVM), and makes one lake commit of
the files that came back (``round.py``). The service (``service.py``) asks the coordinator which tables are due, and
runs rounds of several tables side by side.

What makes each row arrive exactly once
    1. A round plans from the lake's own truth: the offsets in its newest snapshot, never from what anybody remembers.
    2. Files, position deletes and the new offsets are one commit, which lands only on the snapshot it was planned from.
    3. A task that runs twice writes two files with different names; only what the driver collected is committed.
    4. A round that dies leaves files nobody refers to, and nothing else. The next one plans as if it had never been.
"""
