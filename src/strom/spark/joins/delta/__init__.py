"""``delta_join``: a streaming query that keeps the join of two tables in a third.

From large to small:

    query     follows both changelogs from one checkpoint, forever or until it caught up (``join_query.py``)
    batch     a range of offsets of both changelogs, published by one decision (``batches.py``)
    share     the part of a batch that one task reads (``task``)
    group     a join key that the share touched; the unit of work

The rule: for every join key that changed, before or after the change, look up what both tables hold *now* and make
the result's rows of that key equal to their join. Nothing depends on what exactly changed, so a batch may be repeated,
may see newer rows than its own, and may miss that a row changed twice. Spark stores offsets and nothing else.

Read ``delta_join.py``, then ``join_source.py`` (the stream), ``task/recompute.py`` (the work) and ``start/starting.py``
(the first result). ``start`` and ``task`` do not import each other.
"""
