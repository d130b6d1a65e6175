"""The lake: a table's rows in Iceberg, as far as they were tiered, and reading them back.

Rows lie in Parquet files of one bucket each, sorted by offset; a round adds files and position deletes in one commit
that also says how far each bucket is held (docs/formats/lake.md). Files are written and read without PyIceberg, so that
workers stay light; catalogs and commits are PyIceberg's.

Rooms, each importing those before it: ``files``, ``iceberg``, ``read``, ``upkeep``, ``rounds``.
"""
