"""History in an object store, at work in a tablet server: logs go up, and are read from there again.

    remote_access.py   the settings, and the store that they name
    remote_logs.py     the remote logs of this server's buckets, for calls and background work
    remote_log.py      one bucket's: what is known of it, and reads of it
    extent_memory.py   what was fetched and will be asked for
    range_cache.py     what was fetched and may be asked for again, on this disk
    bucket_upload.py   the next stretch of one bucket's log goes up
    log_stretch.py     which stretch that is
    uploads.py         who goes up when, and what becomes of a store that does not answer
    chain_owner.py     one folder uploads to a place, not a copy of it
    table_about.py     what a manifest says of its table
    remote_drops.py    remote logs of dropped tables are removed
    upload_facts.py    what people and monitoring see of it

Promises: a store that is down stops no write and no failover; reads of rows that are here never wait for it; nothing
is said to be in the store that cannot be read there. The chain of manifests and the objects are ``strom.remote``.

Threads. Everything that awaits the store runs on a loop of its own (``OwnLoop``); bytes are put together and written
to files in threads of its own. What calls look at (``Tablet.past``) is set on the server's loop.
"""
