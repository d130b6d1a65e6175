"""Who belongs to a cluster of machines, who is there, and which coordinator is the active one.

    candidacy.py          a coordinator takes over when the active one is gone, and gives up when another took over
    heartbeats.py         coordinators ask every server whether it is there
    forwarding.py         a coordinator that stands by passes calls on to the active one
    server_watch.py       one coordinator's watch over all of them
    failover.py           what the active coordinator does about those that are gone, back or about to stop
    recovery.py           the same for buckets all of whose copies in sync lost power
    metadata_contact.py   whether this process can still reach the metadata
    registration.py       a tablet server tells the cluster that it is there

What is decided from it is pure and elsewhere: ``coordinator/liveness.py``, ``coordinator/term.py``, ``replication``.
"""
