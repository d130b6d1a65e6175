"""One file per kind of call: from a request to an answer.

    produce.py          appends
    fetch.py            long-polling reads; fetch_log.py and fetch_rows.py say what is read and how it is answered
    offsets.py          offsets by time, the last rows of a bucket
    databases.py tables.py partitions.py   the catalog, by name
    where.py            metadata: servers, leaders, schemas; writer ids
    state.py            what the command line and the status page show

A group of calls is a class with a method per call and ``handlers()`` that names them; ``dispatch.py`` puts the groups
of a process together. Answers that need nothing to wait for are returned at once; only waiting becomes a future.
"""
