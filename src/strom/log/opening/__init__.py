"""Opening a log: what is found, what is trusted, what is cut; and inspecting its files without a log.

Read ``recovery.py`` first, then ``segment_scan.py`` (one segment after an unclean stop).
"""
