"""Rows by key: one, many, by prefix or by index.

Read ``lookup.py`` first: it answers every question. ``one_key.py`` and ``many_keys.py`` are the short ways of a caller
who waits. Imports nothing above ``plan``.
"""
