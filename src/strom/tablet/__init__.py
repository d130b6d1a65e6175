"""One bucket on one server: a log, its high watermark and the waits for it.

A tablet promises
    1. that nothing enters its log unchecked: lengths, checksum, schema, sequence;
    2. that no reader sees past the high watermark, and no acknowledgement precedes it;
    3. that a tablet whose disk failed says so to everyone, at once and for good.

It is synchronous and knows neither threads nor the network: the server decides where its work runs and passes the time
in. A tablet is composed: ``tablet.py`` is what all have in common; ``log_tablet.py`` and ``key_tablet.py`` add how rows
come in. Rows that are published by a decision go stages.py → publishing.py → log_pieces.py or key_pieces.py. What a
tablet does as one copy of several is in copies/bucket_copy.py.

Read first: tablet.py, log_tablet.py, pending.py; then key_tablet.py, change_writer.py, key_upkeep.py.
"""
