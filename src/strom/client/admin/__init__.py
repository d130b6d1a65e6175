"""Databases, tables, partitions, indexes and the cluster's view of the lake: everything but rows.

Read ``admin.py`` first. Imports ``plan``, ``input`` and ``cluster``.
"""
