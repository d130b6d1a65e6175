"""History in an object store: the chain of one bucket's manifests, and the objects that they name.

    remote_names.py      the keys of a bucket's objects
    remote_manifest.py   a manifest: what the store has of a bucket, as bytes and back (docs/formats/remote_manifest.md)
    remote_chain.py      the numbered manifests: the newest one, and the creation of the next
    chain_leader.py      what a leader does: claim, upload, name, sweep, drop; fenced by a higher epoch
    settling.py          after a loss: where the local log and the remote one part
    reader_pins.py       what readers hold
    local_deletion.py    up to where local segments may go
    remote_expiry.py     which rows leave the remote log
    dropping.py          the end of a remote log

    column_extents.py    batches to the bytes of a remote segment, columns side by side (docs/formats/remote_segment.md)
    segment_directory.py what lies where in it
    segment_reader.py    whole batches, byte for byte, or some columns only
    slice_plan.py        which batches a read takes next

Promises: what the newest manifest names is in the store; a leader that was deposed can neither name nor remove
anything; whatever answer was lost, and whatever lands later; bytes come back as they were or as an error.

Everything goes through the port of object stores, so a simulation can stand behind it. It does not know asyncio,
threads or clocks: times are arguments. Read first: remote_chain.py, chain_leader.py.
"""
