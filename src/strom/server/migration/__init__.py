"""The metadata of one machine move to ZooKeeper, and back: ``strom migrate-metadata``.

Promises: nothing is changed while a server runs, or before everything was checked; a move that is cut short can be
repeated, and until it is, no server starts on what is half done; the old metadata stay as a backup; no epoch is used
twice.

The words: a *move* has a direction; the *entries* are translated (``moved_entries.py``, pure); the folder of a bucket
is *nested* when it becomes that of a copy (``bucket_nesting.py``). ``migrate.py`` puts the steps in an order that
survives a crash after each of them: read it first.
"""
