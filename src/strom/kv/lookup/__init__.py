"""Rows by key: many at once (``reading.py``), or one, without Arrow (``single_row.py``)."""
