"""What the cluster remembers: databases, tables, partitions, leaders, counters, as small values under keys.

Promises: a commit is atomic and durable when it returns; it happens only if everything it was decided upon
still holds (``Conflict`` otherwise); versions never go back, not even when a file was damaged; a damaged byte
is detected or harmless, never returned.

Does not do: say what the keys mean (that is ``coordinator``), hold data, elect anybody.

Read first: ``store.py`` (the port), ``changes.py`` (what a commit is made of), then ``embedded.py`` and
docs/formats/metadata.md for the store on one machine.
"""
