"""What users pass in, as Arrow batches of one table's schema: rows, files, data frames and keys.

Read ``arrow_input.py`` first, then ``casting.py`` (which types fit which) and ``routing.py`` (which bucket a row goes
to). ``row_files/`` reads files of rows. Imports ``cluster`` at most.
"""
