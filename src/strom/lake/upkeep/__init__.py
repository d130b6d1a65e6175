"""What keeps the lake's tables in shape: compaction, expiry, removal, and repair by hand.

Read ``maintenance.py`` first (what happens after rounds), then ``lake_admin.py`` (what an operator asks for).
"""
