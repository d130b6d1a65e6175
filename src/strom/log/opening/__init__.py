"""Opening a log: what is there, what is proven, what is cut; and a look at its files from outside.

Read ``recovery.py`` first, then ``scan.py`` (one segment after an unclean stop).
"""
