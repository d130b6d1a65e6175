"""The stored rows: base files below, the tail above, a live bit for each.

Read ``rows.py`` first, then ``tail.py`` and ``base_file.py``; ``carrying.py`` and ``merging.py`` move rows from one to
the other. Imports ``index``, ``gather`` and ``kernels``.
"""
