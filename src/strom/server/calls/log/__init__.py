"""Calls on logs: ProduceLog, FetchLog, FetchRows, and MarkDamage.

Read ``produce.py`` first, then ``fetch.py``, which both kinds of fetch share.
"""
