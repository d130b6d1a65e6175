"""Data files of the lake: written, described and read back, wherever they lie.

Read ``file_writer.py`` and ``file_reader.py`` first, then ``storage.py`` (local folders and object stores). Imports no
other room of the lake.
"""
