"""Data files of the lake: writing, describing and reading them, wherever they are stored.

Read ``file_writer.py`` and ``file_reader.py`` first, then ``storage.py`` (local folders and object stores). Imports no
other room of the lake.
"""
