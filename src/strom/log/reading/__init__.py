"""Reading a log: whole batches from an offset on, in runs where they are cut alike; places by time and by row.

Read ``slices.py`` first.
"""
