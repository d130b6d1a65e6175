"""Who belongs to a cluster of machines, who is there, and which coordinator is the active one.

At every server:

    registration.py       a tablet server tells the cluster that it is there
    hearing.py            what the active coordinator has changed, every server hears before its client does
    metadata_contact.py   whether this process can still reach the metadata

At every coordinator:

    heartbeats.py         a connection to a server, on which it is asked whether it is there
    server_watch.py       asks all servers, and the active coordinator, whether they are there
    candidacy.py          takes over when the active one is gone, and gives up when another took over
    forwarding.py         one that stands by passes calls on to the active one

At the active one, put together by ``cluster_duties.py``:

    failover.py           leaders for the buckets of servers that are gone, back or about to stop
    recovery.py           the same for buckets all of whose copies in sync lost power
    leader_return.py      leaders go back to the servers that their buckets prefer
    rebalancing.py        a rebalance that is under way; rebalance_plans.py: how one is made and shown
    operation_calls.py    what people ask of it; peer_rebalance_calls.py: the same in the peer's calls

What is decided from it is pure and elsewhere: ``coordinator/liveness.py``, ``coordinator/term.py``, ``replication``.
"""
