"""What people hand in, made fit for one table: rows, files, frames and keys as Arrow batches of its schema.

Read ``arrow_input.py`` first, then ``casting.py`` (which types fit which) and ``routing.py`` (which bucket a row goes
to). ``files/`` reads files of rows. Imports ``cluster`` at most.
"""
