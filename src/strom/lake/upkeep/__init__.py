"""Upkeep of lake tables: compaction, expiry, removal, and repair by an operator.

Read ``maintenance.py`` first (what happens after rounds), then ``lake_admin.py`` (what an operator asks for).
"""
