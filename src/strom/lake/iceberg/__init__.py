"""The lake's tables as Iceberg knows them: catalogs, snapshots, manifests, deletes, and whose they are.

Read ``table.py`` first, then ``lake_head.py`` (how far a snapshot holds each bucket) and ``held_files.py`` (its files).
Imports ``files``.
"""
