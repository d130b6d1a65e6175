"""What keeps the lake's tables in shape: compaction, expiry, removal, and repair by hand.

Read ``maintenance.py`` first (what happens after rounds), then ``care.py`` and ``tidying.py`` (what a person asks for).
"""
