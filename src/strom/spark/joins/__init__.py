"""Joins whose state lives in the tables: ``lookup_join`` enriches rows, ``delta_join`` keeps the join of two tables.

The words, from large to small:

    side          one input of a join: a table, a filter, a choice of columns (``definition.Side``)
    join key      the values of the columns that must be equal; as bytes, ``__jk`` of the result
    group         all rows of both sides with one join key. A row whose join key is NULL forms a group alone
    pair          a left row and a right row of a group: one row of the result. Either may be missing in an outer join
    access path   how a side's rows are found by join key: primary key, a prefix of it, or an index

Shared by both joins: ``definition.py`` (what the user asks for, checked), ``key_bytes.py``, ``access_path.py`` and
``row_pairs.py`` (which rows pair up, and how two results differ; pure). ``lookup`` and ``delta`` do not import each
other.
"""
