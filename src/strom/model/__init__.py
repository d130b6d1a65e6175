"""What a table is: types, schemas, names, properties, predicates, partitions, buckets.

Promises: every object here is immutable and valid once it exists; what cannot be is refused with a typed
error that says what to change. JSON and type names are the peer's, so that its clients read and write them.

Does not: touch files, sockets or clocks, or know how a batch is stored. Nothing here loops over rows.

Read first: ``data_type.py`` and ``schema.py``, then ``table.py``; ``filters/predicate.py`` for filters.
"""
