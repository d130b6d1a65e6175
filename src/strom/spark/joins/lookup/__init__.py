"""``lookup_join``: each row of a DataFrame or stream with the rows that a table holds for it now.

Read ``lookup_join.py``; ``row_cache.py`` is what a worker may reuse. Nothing is remembered in Spark.
"""
