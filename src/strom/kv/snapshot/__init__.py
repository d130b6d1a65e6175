"""The store on disk: written beside the writers, made true by one manifest, opened again after a stop.

Read ``snapshot.py`` first, then ``manifest.py`` and ``recovery.py``.
"""
