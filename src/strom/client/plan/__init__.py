"""Planning a read: which partitions and buckets, from which offset to which, with which filter.

Read ``log_plan.py`` first (offsets of a log), then ``key_plan.py`` (live rows at an instant) and ``cut.py`` (where
reads end so that they hold whole transactions). A *place* is where a user wants to begin or end. Plans are plain data.
Imports ``cluster`` and ``input``, and neither reads nor writes rows.
"""
