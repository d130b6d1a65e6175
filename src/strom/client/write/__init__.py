"""Rows on their way in: gathered, sent in order and once, kept until acknowledged; and published together.

Read ``row_writer.py`` first, then ``accumulator.py`` (what is gathered), ``delivery.py`` (what is sent) and ``call.py``
(how it enters a server). ``staging.py`` and ``transaction.py`` publish many buckets at once. Never imports ``read``.
"""
