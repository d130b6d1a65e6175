"""Files of the lake as Spark's own Parquet reader takes them, with the rows left out that do not count.

Read ``parquet_files.py`` first. Imports ``connect``.
"""
