"""Files of rows that tables are filled from.

Read in this order: ``form`` (what a file holds, told by its ending), ``rows`` (what every reader promises), then the
readers ``csv_rows``, ``json_rows`` and ``column_files``, and ``opening``, which chooses one of them.
"""
