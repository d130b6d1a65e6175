"""Rows by key: one, many, by prefix or by index.

Read ``lookup.py`` first: it answers every question. ``row_lookup.py`` and ``batch_lookup.py`` are the short ways of a
caller who waits. Imports nothing above ``plan``.
"""
