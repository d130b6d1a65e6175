"""One file per kind of call: from a request to an answer.

    log/        appends and long-polling reads of logs
    keys/       upserts, lookups and scans of primary-key tables
    catalog/    databases, tables, partitions; metadata (servers, leaders, schemas, writer ids); status
    publish/    stages of many buckets, published by one decision
    cut.py      where the reads of a plan end
    offsets.py  offsets by time, the last rows of a bucket
    lake/       what tiering services and readers of the lake ask

A group of calls is a class with a method per call and ``handlers()`` that names them; ``dispatch.py`` puts the groups
of a process together. Answers that need nothing to wait for are returned at once; only waiting becomes a future.
"""
