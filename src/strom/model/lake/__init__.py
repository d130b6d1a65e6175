"""Shared facts about the lake: where it is, who owns it, and up to which offset it holds each bucket.

Read ``lake.py`` first, then ``lake_record.py`` (what the cluster remembers).
"""
