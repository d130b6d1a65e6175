"""Writing: rows are gathered, sent in order and once, kept until acknowledged, and published together.

Read ``row_writer.py`` first, then ``accumulator.py`` (what is gathered), ``delivery.py`` (what is sent) and
``write_call.py`` (in which request). ``staging.py`` and ``decision.py`` publish many buckets at once. Never imports
``read``.
"""
