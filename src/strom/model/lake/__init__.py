"""What everybody agrees on about the lake: where it is, whose it is, how far it holds each bucket.

Read ``lake.py`` first, then ``lake_record.py`` (what the cluster remembers).
"""
