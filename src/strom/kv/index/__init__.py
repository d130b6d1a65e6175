"""Where keys are: hash -> row id -> newest version, the versions before it, and secondary lists.

Read ``index.py`` first, then ``series.py`` (what a version replaced) and ``secondary_index.py``. Imports ``gather`` and
``kernels``.
"""
