"""Files whose rows ``strom append`` and ``strom upsert`` read: named on the command line, or standard input.

Read in this order: ``options``, ``naming`` (which file, and what it holds), ``creating`` (a table with its columns),
``telling``. The readers themselves are ``strom.client.input.row_files``.
"""
