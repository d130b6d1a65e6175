"""A log that is one copy of several: what followers pull of it, and how a follower takes that in.

Read first: ``pulled.py``, then ``following.py``; rebuilding a copy: ``base_files.py``.
"""
