"""One bucket on one server: a log, its high watermark and those who wait for it.

A tablet promises
    1. that nothing enters its log unchecked: lengths, checksum, schema, sequence;
    2. that no reader sees past the high watermark, and no acknowledgement precedes it;
    3. that a tablet whose disk failed says so to everyone, at once and for good.

It is synchronous and knows neither threads nor the network: the server decides where its work runs and
passes the time in. Read ``log_tablet.py`` first, then ``pending.py``.
"""
