"""What a task of a delta join does: find the join keys its share touched, look up both sides, stage the difference.

Join keys come from three places: changes (``changed_keys.py``), partitions that were dropped (``dropped_keys.py``) and
partitions whose last changes went to the lake unread (``unread_keys.py``). ``key_groups.py`` makes them unique,
``side_rows.py`` finds their rows on the servers and ``lake_only_lookup.py`` in the lake. Read ``recompute.py`` first.
"""
