"""Calls on logs: ProduceLog, FetchLog, FetchRows, and giving up what cannot be read.

Read ``produce.py`` first, then ``fetch.py``, which both kinds of fetch share.
"""
