"""Rows on their way out: scans, changelogs and tails.

Read ``log_scan.py`` first, then ``fetching.py`` (several buckets at once) and ``tail.py``. The ``direct_*`` modules do
the same for a thread that blocks, on sockets of its own. Never imports ``write``.
"""
