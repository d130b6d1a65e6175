"""Decisions about the copies of a bucket, as pure functions and small state machines.

Words: a *copy* is what one server has of a bucket; a *member* is a server together with the identity of its copy; the
*entry* is what the metadata says of the bucket's copies; a *pull* is a follower's question, and the *report* in it says
what its copy has; ``high`` is the high watermark, ``stable`` the lowest synced end of the counted members.

Promises, as long as the caller does what it is told and commits with the requirements it is given
    1. What was acknowledged with ``acks=all`` is on every member that can be elected, as durable as the table promises.
    2. (epoch, offset) names one record for ever: metadata gives epochs, and each is led once.
    3. A follower's log becomes the leader's by comparing epochs, never by trusting a watermark.
    4. A stage that was acknowledged is on every member that can be elected, until the leader drops it.

The rules have numbers, R1 to R24; each stands in a comment where it acts, and all of them, with what went wrong without
them, in docs/decisions/0018-replication.md. Their executable form is in ``tests/replication/specification``.

Not here: files, networks, threads, clocks, the metadata store. Time, and what was heard, are arguments.

Read first: member.py, bucket_entry.py, then leadership.py, followership.py and elections.py.
"""
