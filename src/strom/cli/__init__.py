"""The command line: ``strom``, one file per noun.

What it promises: ``strom --help`` answers at once (nothing heavy is imported before a command runs), every
command shows examples in its ``--help``, results go to standard output and everything else to standard error,
and the exit code tells how it went: 0 well, 1 Strom refused or failed, 2 the words on the command line are
wrong, 130 interrupted.

It has no logic: it parses arguments, calls ``strom.api`` (or, for ``up`` and ``log show``, the server
and the log), and prints. Read first: ``main.py``.
"""
