"""The primary-key store of one bucket: which row a key has now, had at an offset, and where its columns lie.

Promises
    1. Keys are exact: two keys that share a hash are told apart by their columns, unless the hash is a bijection.
    2. The changelog is the truth. Index, series and lists are derived from it; above the manifest's offset they are
       always rebuilt from it, so no file of this package is believed beyond what a manifest names.
    3. Nothing here stalls writers for longer than a batch: growth touches one shard, and files are written in the
       background.

Work per row is done by compiled kernels (``kernels/compile.py``) that release the interpreter; Python runs per batch.
Not here: logs, threads, networks, clocks. One thread changes a store; readers in other threads hold the tablet's
lock, or an immutable snapshot of what they read.

Read first: store.py, which puts the rooms together, then index/index.py (key -> row id -> newest version),
index/series.py (earlier versions) and rows/rows.py. A batch comes in through write_pass.py, then publication.py.
"""
