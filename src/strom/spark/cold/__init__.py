"""Lake files for Spark's own Parquet reader, without their dead rows.

Read ``parquet_files.py`` first. Imports ``connect``.
"""
