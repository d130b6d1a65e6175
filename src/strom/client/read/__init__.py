"""Reading rows: scans, changelogs and tails.

Read ``bucket_read.py`` first (how one bucket is read), then ``fetching.py`` and ``direct_scan.py`` (its two drivers:
the client's loop, and the caller's own thread), ``log_scan.py`` and ``key_scan.py``, and last ``tail.py`` with
``direct_tail.py``. Never imports ``write``.
"""
