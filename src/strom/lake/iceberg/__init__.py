"""The lake's tables in Iceberg: catalogs, snapshots, manifests, deletes, commits, and who owns them.

Read ``table.py`` first, then ``lake_head.py`` (how far a snapshot holds each bucket) and ``held_files.py`` (its files).
Imports ``files``.
"""
