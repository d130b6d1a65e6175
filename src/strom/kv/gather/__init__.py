"""Gathering values from many places into one: columns at fixed addresses, and the kernels that copy them.

Read ``column_source.py`` first, then ``directory.py`` and ``gather.py``. Imports ``kernels``.
"""
