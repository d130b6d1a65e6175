"""The buckets of this server: found, opened, worked on one piece at a time, closed.

Read ``tablets.py`` first, then ``tablet_slot.py`` (a bucket's place) and ``bucket_lane.py`` (its work, in order).
``table_facts.py`` has what serving a table needs.
"""
