"""Databases, tables, partitions, indexes and what the cluster knows of the lake: everything but rows.

Read ``admin.py`` first. Imports ``plan``, ``input`` and ``cluster``.
"""
