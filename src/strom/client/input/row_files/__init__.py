"""Readers of files of rows.

Read in this order: ``file_format`` (what a file holds, by its ending), ``file_rows`` (what every reader promises), then
the readers ``csv_rows``, ``json_rows`` and ``column_files``, and ``opening``, which chooses one of them.
"""
