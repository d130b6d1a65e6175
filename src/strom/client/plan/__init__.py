"""What a read will read, decided before the first row: where buckets begin and end, filters, the cut.

Read ``log_plan.py`` first (logs), then ``key_plan.py`` (live rows at an instant) and ``cut.py`` (reads that hold
whole decisions). Plans are plain data. Imports ``cluster`` and ``input``, and neither reads nor writes rows.
"""
