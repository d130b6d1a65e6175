"""The store on disk: written while writers go on, made valid by one manifest, reopened after a stop.

Read ``snapshot.py`` first, then ``manifest.py`` and ``recovery.py``.
"""
