"""Rows by key: one, many, by prefix or by index.

Read ``lookup.py`` first: the general way, which handles every lookup. ``row_lookup.py`` (one key) and
``batch_lookup.py`` (many keys of one bucket) are shortcuts for a caller that waits; where they do not apply they
return None, and the general way is taken. Imports nothing above ``plan``.
"""
