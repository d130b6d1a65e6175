"""Rows by key: many at once (``many_rows.py``), or one, without Arrow (``single_row.py``)."""
