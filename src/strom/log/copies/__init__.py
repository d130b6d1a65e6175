"""A log that is one copy of several: what followers pull of it, and how a follower takes that in.

Read first: ``pulled.py``, then ``following.py``; a copy that is made anew: ``base_files.py``.
"""
