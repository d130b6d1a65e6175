"""Calls on primary-key tables: lookups, scans, upserts and deletes.

Read ``upserts.py`` first, then ``bucket_lookup.py``, which all lookups share.
"""
