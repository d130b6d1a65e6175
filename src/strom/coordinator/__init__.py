"""Decisions about the catalog, as pure functions: databases, tables, partitions, leaders, ids.

Promises: a command is a function from the catalog to a plan (requirements, updates, result); it does nothing.
The names of the peer's errors are kept exactly. An id is given out once, also across drops, restarts
and failed commits. The database ``fluss`` always exists.

Does not do: I/O, time (an argument), talking to servers. Committing is one loop in ``coordinator.py``.

Read first: ``catalog.py`` (the state), ``plan.py``, then one noun of ``commands.py``.
"""
