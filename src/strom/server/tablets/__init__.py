"""The buckets of this server: found, opened, worked on one piece at a time, closed.

Read ``tablets.py`` first, then ``slot.py`` (a bucket's place) and ``lane.py`` (its work, in order). ``table_facts.py``
has what serving a table needs.
"""
