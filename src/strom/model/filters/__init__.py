"""Filters: as text, as data, and as computed by Arrow; and which partitions they leave to read.

Read ``predicate.py`` first.
"""
