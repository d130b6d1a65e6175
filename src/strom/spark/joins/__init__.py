"""Joins whose state lives in the tables: ``lookup_join`` enriches rows, ``delta_join`` keeps the join of two tables.

A delta join is a query driven by both changelogs. Of every change it takes the join keys before and after, looks up
what both tables hold of these keys now, and makes the result's rows of these keys equal to their join
(``recompute.py``). Spark keeps offsets and nothing else.

Read first: ``delta.py`` (what a batch does), ``recompute.py`` (what a task does), ``pairs.py`` (the arithmetic).
"""
