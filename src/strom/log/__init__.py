"""The log of one bucket: an ordered chain of segments on a disk, appended at the end.

Promises
    1. Offsets are dense, timestamps never fall, and (epoch, offset) is never given twice.
    2. What was acknowledged survives: kill -9 once ``append`` returned, power loss once it was synced.
    3. A flipped byte in any file is detected or harmless; what can be rebuilt is rebuilt, and one bad batch
       does not hide its neighbours.
    4. A torn tail is cut when the log is opened; nothing that was known to be durable is ever cut.

Does not do: threads, networks, high watermarks, what is inside a batch's columns. One thread at a time appends; readers
may be in other threads and see what is below the offset they were given.

Read first: docs/formats/segment.md, then log.py, segment.py, sidecar.py, chain.py, chain_writer.py, log_end.py,
log_reader.py, reading/slices.py, opening/recovery.py. One copy of several: copies/.
"""
