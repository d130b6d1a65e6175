"""Reading a log: whole batches from an offset on, in runs where they are alike; places by time and by row.

Read ``log_reader.py`` first, then ``slices.py``.
"""
