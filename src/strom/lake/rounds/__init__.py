"""The commit of a tiering round, and what the cluster is told of it.

Read ``commit.py`` first. Imports ``iceberg`` and ``files``.
"""
