"""Reading a log: whole batches from an offset on, in runs where they are alike; places by time and by row.

Read ``slices.py`` first; ``log_reader.py`` above uses it.
"""
