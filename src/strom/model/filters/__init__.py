"""Filters: as people write them, as plain data, as Arrow computes them; and which partitions they leave.

Read ``predicate.py`` first.
"""
