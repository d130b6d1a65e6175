"""The lake: the tiered rows of tables in Iceberg, and reading them back.

Rows are in Parquet files of one bucket each, sorted by offset; a round adds files and position deletes in one commit
that also states how far each bucket is held (docs/formats/lake.md). Files are written and read without PyIceberg, so
that workers stay light; catalogs and commits use PyIceberg.

Rooms, each importing those before it: ``files``, ``iceberg``, ``read``, ``upkeep``, ``rounds``.
"""
