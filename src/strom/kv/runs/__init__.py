"""The part of an index that lies on disk: immutable sorted runs with fences, filters and checked pages.

Format: docs/formats/index_run.md. Read ``run_tiles.py`` first (what is asked), then ``run.py`` (one run),
``run_writer.py`` and ``merging.py``. Imports ``kernels``.
"""
