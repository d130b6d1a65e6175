"""What a bucket does as one copy of several: leading, following, and what other copies get of it.

Read first: ``bucket_copy.py``.
"""
