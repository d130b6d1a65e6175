"""What a table is: types, schemas, names, properties, predicates, partitions, buckets.

Promises: every object here is immutable and valid once it exists; invalid input raises a typed error that says what to
change. JSON and type names are the peer's, so that its clients can read and write them.

Not here: files, sockets, clocks, how a batch is stored. Nothing here loops over rows.

Read first: ``data_type.py`` and ``schema.py``, then ``table.py``; ``filters/predicate.py`` for filters.
"""
