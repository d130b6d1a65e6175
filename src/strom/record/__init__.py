"""Record batches: the unit that is written, stored, sent and checked.

A batch is a small header, optional statistics, optional change types and one Arrow message. The bytes that a
producer sends are the bytes that are stored and served, so this package works on bytes in place: it checks them,
stamps them, takes columns out of them and skips them by their statistics, all without decoding a row.

Promises: whatever the bytes are, the answer is a result or a typed error (``TornBatch``, ``MalformedBatch``,
``ChecksumMismatch``), within time and memory bounded by the batch and its limits. pyarrow sees a batch only after
every length in it was checked. Work is per batch and per column, never per row.

Does not do: files, sockets, offsets of a log, writers and their sequences.

Read first: docs/formats/record_batch.md, then layout.py, batch.py, message.py, encode.py, decode.py, project.py.
"""
