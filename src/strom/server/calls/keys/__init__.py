"""Calls on primary-key tables: lookups, scans, upserts and deletes.

Read ``key_writes.py`` first, then ``key_reads.py``, which all lookups share.
"""
