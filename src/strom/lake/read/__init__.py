"""Reading a table in both tiers at once: every row once, at one instant.

Read ``union_planner.py`` first (the lake's record, then where the buckets end), then ``union_scan.py``. Imports
``iceberg`` and ``files``.
"""
